// Package testutil has fixtures for tests that need the kernel.
package testutil
