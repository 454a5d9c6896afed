#!/usr/bin/env bash
# Makes the certificates of the TLS tests: a CA, another CA that signed nothing of ours, servers, and a client.
# They are valid from 2020 to 2120, `expired` for one month of 2020. These keys protect nothing; that of the client has a password.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

request() { # name
  openssl ecparam -name prime256v1 -genkey -noout -out "$work/$1.key"
  openssl req -new -key "$work/$1.key" -subj "/CN=downrange test $1" -out "$work/$1.csr"
}
sign() { # name, extensions, signer, last day
  local signer=(-cert "$3.pem" -keyfile "$work/$3.key")
  [ "$1" != "$3" ] || signer=(-selfsign -keyfile "$work/$1.key")
  : > "$work/index"
  openssl rand -hex 8 > "$work/serial"
  printf '[ca]\ndefault_ca=d\n[d]\ndatabase=%s\nserial=%s\nnew_certs_dir=%s\npolicy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n[e]\n%s\n' \
    "$work/index" "$work/serial" "$work" "$2" > "$work/config"
  openssl ca -batch -notext -md sha256 -config "$work/config" "${signer[@]}" -in "$work/$1.csr" -out "$1.pem" \
    -startdate 20200101000000Z -enddate "${4:-2120}0201000000Z"
}
as_ca=$'basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign'
loopback='subjectAltName=DNS:localhost,IP:127.0.0.1'

for name in ca other-ca server named client expired; do request "$name"; done
sign ca "$as_ca" ca
sign other-ca "$as_ca" other-ca
sign server "$loopback" ca
sign expired "$loopback" ca 2020
sign named 'subjectAltName=DNS:brokers.example' ca
sign client 'subjectAltName=DNS:client.example' ca
cp "$work"/{server,named,expired}.key .
openssl ec -in "$work/client.key" -aes256 -passout pass:Pa55word -out client.key
