// Scenarios of the Go client against a running cluster.
//
// Arguments: scenario, name server, prefix of topic and group names. Prints one JSON line with what was observed;
// a scenario that waits in vain fails.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var scenarios = map[string]func(*world) error{
	"produce":     produce,
	"push":        push,
	"orderly":     orderly,
	"transaction": transaction,
	"retry":       retry,
	"broadcast":   broadcast,
	"spread":      spread,
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: scenario name-server prefix")
		os.Exit(2)
	}
	rlog.SetLogLevel("error")
	scenario, known := scenarios[os.Args[1]]
	if !known {
		fmt.Fprintln(os.Stderr, "no such scenario:", os.Args[1])
		os.Exit(2)
	}
	w := newWorld(os.Args[2], os.Args[3])
	if err := scenario(w); err != nil {
		fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
		os.Exit(1)
	}
	line, err := json.Marshal(w.facts)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}
