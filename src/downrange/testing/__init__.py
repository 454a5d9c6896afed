"""What tests of downrange, and of programs that use it, can take: clocks, faulty disks."""
