/*
 * STREAM's four kernels (McCalpin), written for Vigia from their definition: sustained memory bandwidth of one
 * thread. stream ELEMENTS prints MB/s as JSON, and fails if the arrays do not hold what the kernels compute.
 *
 *   copy   c = a          two arrays
 *   scale  b = q c        two arrays
 *   add    c = a + b      three arrays
 *   triad  a = b + q c    three arrays
 *
 * As STREAM counts: MB are 10^6 bytes, what a cache fetches before it writes is not counted, the kernels take turns,
 * the first turn is not timed, and the best of the others is what is printed. A compiler may make copy a memcpy.
 */

#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COPY, SCALE, ADD, TRIAD, KERNELS };

#define TURNS 11
#define PAGE 4096
#define MOST 100000000
#define FACTOR 3.0

static const char *const NAMES[KERNELS] = {"copy", "scale", "add", "triad"};
static const double ARRAYS[KERNELS] = {2, 2, 3, 3};

/* The clock is asked before and after a kernel: what is computed must not move across. */
static double now(void)
{
	struct timespec t;

	__asm__ volatile("" ::: "memory");
	clock_gettime(CLOCK_MONOTONIC, &t);
	__asm__ volatile("" ::: "memory");
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void turn(int kernel, double *restrict a, double *restrict b, double *restrict c, size_t n)
{
	switch (kernel) {
	case COPY:
		for (size_t i = 0; i < n; i++)
			c[i] = a[i];
		break;
	case SCALE:
		for (size_t i = 0; i < n; i++)
			b[i] = FACTOR * c[i];
		break;
	case ADD:
		for (size_t i = 0; i < n; i++)
			c[i] = a[i] + b[i];
		break;
	case TRIAD:
		for (size_t i = 0; i < n; i++)
			a[i] = b[i] + FACTOR * c[i];
		break;
	}
}

/* Every element of an array is what the kernels make of one number, to rounding. */
static int holds(const char *name, const double *array, size_t n, double expected)
{
	for (size_t i = 0; i < n; i++) {
		/* written so that NaN is wrong, too */
		if (!(fabs(array[i] - expected) <= 1e-13 * expected)) {
			fprintf(stderr, "element %zu of array %s is %.17g, not %.17g\n", i, name, array[i],
				expected);
			return 0;
		}
	}
	return 1;
}

static int right(const double *a, const double *b, const double *c, size_t n)
{
	double x = 1.0, y = 2.0, z = 0.0;

	for (int i = 0; i < TURNS; i++) {
		z = x;
		y = FACTOR * z;
		z = x + y;
		x = y + FACTOR * z;
	}
	return holds("a", a, n, x) && holds("b", b, n, y) && holds("c", c, n, z);
}

static double *array(size_t n, double value)
{
	void *made = NULL;
	double *out;

	if (posix_memalign(&made, PAGE, n * sizeof(double)) != 0) {
		fprintf(stderr, "no memory for %zu doubles three times; measure fewer\n", n);
		exit(1);
	}
	out = made;
	for (size_t i = 0; i < n; i++)
		out[i] = value;
	return out;
}

static int tell(const double *best, size_t n)
{
	for (int k = 0; k < KERNELS; k++) {
		if (best[k] <= 0) {
			fprintf(stderr, "%zu doubles are too few for this clock; measure more\n", n);
			return 0;
		}
	}
	for (int k = 0; k < KERNELS; k++)
		printf("%s\"stream_c_%s\": %.6g", k ? ", " : "{", NAMES[k],
		       ARRAYS[k] * sizeof(double) * (double)n / best[k] / 1e6);
	printf("}\n");
	return 1;
}

static size_t elements(int argc, char **argv)
{
	char *end = NULL;
	intmax_t n;

	errno = 0;
	n = argc == 2 ? strtoimax(argv[1], &end, 10) : 0;
	if (argc != 2 || end == argv[1] || *end != '\0' || errno != 0 || n < 1 || n > MOST) {
		fprintf(stderr, "usage: stream ELEMENTS, 1 to %d\n", MOST);
		exit(2);
	}
	return (size_t)n;
}

int main(int argc, char **argv)
{
	size_t n = elements(argc, argv);
	double *a = array(n, 1.0), *b = array(n, 2.0), *c = array(n, 0.0);
	double best[KERNELS] = {HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL};
	int good;

	for (int i = 0; i < TURNS; i++) {
		for (int k = 0; k < KERNELS; k++) {
			double begin = now(), took;

			turn(k, a, b, c, n);
			took = now() - begin;
			if (i > 0 && took < best[k])
				best[k] = took;
		}
	}
	good = right(a, b, c, n) && tell(best, n);

	free(a);
	free(b);
	free(c);
	return good ? 0 : 1;
}
