// Package ovsdb keeps a live copy of tables of an OVSDB server (RFC 7047), for
// reading conditions: ovsdb-server pushes changes, nothing is polled.
package ovsdb
