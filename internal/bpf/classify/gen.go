package classify

//go:generate go tool bpf2go -cc clang -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" -type match -type source -type arrival -type class_key -type endpoint -type tunnels classify classify.bpf.c
