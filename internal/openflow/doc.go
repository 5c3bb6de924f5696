// Package openflow reads statistics of an OpenFlow switch, versions 1.0 to 1.4,
// over a stream socket such as Open vSwitch's <bridge>.mgmt. It never changes
// anything at the switch.
//
// Section numbers in comments are those of the OpenFlow Switch Specification
// 1.4.1, where they are not said to be of another version.
package openflow
