package realtime

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

const writes = 1000

// long answers in many writes.
func long(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Kept", "yes")
		w.WriteHeader(http.StatusAccepted)
		for range writes {
			if n, err := w.Write([]byte{'x'}); n != 1 || err != nil {
				t.Errorf("wrote %d bytes: %v", n, err)
			}
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
	})
}

// pinned runs f on a thread of its own that has to share one processor with the
// others that are pinned.
func pinned(t *testing.T, f func()) (done chan struct{}) {
	t.Helper()
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !allowed.IsSet(cpu) {
		cpu++
	}
	done = make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	return done
}

// While a long answer is written, a thread that waits for the same processor runs many
// times; without yields the writes are over before its first turn.
func TestYieldingLetsOthersRun(t *testing.T) {
	var turns atomic.Int64
	var over atomic.Bool
	other := pinned(t, func() {
		for !over.Load() {
			turns.Add(1)
			Yield()
		}
	})
	recorder := httptest.NewRecorder()
	var during int64
	<-pinned(t, func() {
		for turns.Load() == 0 && !over.Load() {
			Yield()
		}
		before := turns.Load()
		Yielding(long(t)).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		during = turns.Load() - before
	})
	over.Store(true)
	<-other
	if during < writes/20 {
		t.Errorf("another thread had %d turns during %d writes", during, writes)
	}
}

// Nothing of the answer changes.
func TestYieldingAnswersTheSame(t *testing.T) {
	recorder := httptest.NewRecorder()
	Yielding(long(t)).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if recorder.Code != http.StatusAccepted || recorder.Header().Get("X-Kept") != "yes" {
		t.Errorf("status %d, headers %v", recorder.Code, recorder.Header())
	}
	if n := recorder.Body.Len(); n != writes || !recorder.Flushed {
		t.Errorf("%d bytes, flushed: %v", n, recorder.Flushed)
	}
}
