package vport

// -Wall -Werror keeps the program honest; -mcpu=v3 needs Linux 5.1, and TCX needs 6.6 anyway.
//go:generate go tool bpf2go -cc clang -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" -type counters -type state -type limit -type settings -type window -type place -type contract -type bucket -type pace -type pair -type pairs -type spent -type pairs_spent -type shape -type seed -type mac_pairs vport vport.bpf.c
