package realtime

import (
	"net/http"

	"golang.org/x/sys/unix"
)

// Yield lets another thread run that waits for the processor of the caller, if there
// is one (sched_yield(2)).
//
// A locked goroutine that the runtime preempts is handed back to its thread by
// another thread, of ordinary priority, which on a busy processor waits for the end of
// somebody's time slice, some milliseconds. Long work of the same process therefore
// yields every 0.1 ms or so.
func Yield() {
	// Raw: around an ordinary system call the runtime's monitor takes notice.
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

// Yielding yields before each write of an answer, so that a long one is rendered in
// short slices.
func Yielding(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&yieldingWriter{w}, r)
	})
}

type yieldingWriter struct{ http.ResponseWriter }

func (y *yieldingWriter) Write(b []byte) (int, error) {
	Yield()
	return y.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (y *yieldingWriter) Unwrap() http.ResponseWriter { return y.ResponseWriter }
