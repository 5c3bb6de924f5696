// Package bench measures vigia-exporter beside its peers: what it takes for a thousand ports,
// what its programs take of a packet, and how soon it recovers. It has tests only.
package bench
