// SPDX-License-Identifier: Apache-2.0
/*
 * References for the tests of `weir perf`: loops of system calls and nothing else, the least work
 * that a program can do for these tests. scripts/perf-references compiles and runs this file.
 *
 *   perf-references stream  SIZE SECONDS CPU CPU    Mbit/s over TCP that the reader gets
 *   perf-references rr      SIZE SECONDS CPU CPU    round trips a second over TCP
 *   perf-references latency   unix|pipe|tcp SIZE SECONDS CPU CPU    microseconds of a round trip
 *   perf-references bandwidth unix|pipe|tcp SIZE SECONDS CPU CPU    MB/s that the reader gets
 *
 * The first CPU is that of the process that measures, the second that of its peer. -1 is any CPU.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Warm-up in seconds, as in `weir perf latency`. */
#define WARM_UP 0.02

struct ends {
	int in;
	int out;
};

static void fail(const char *doing)
{
	perror(doing);
	exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

static void pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("pinning to a CPU");
}

static void read_all(int fd, char *into, size_t size)
{
	while (size) {
		ssize_t count = read(fd, into, size);

		if (count <= 0)
			exit(count ? 1 : 0);
		into += count;
		size -= count;
	}
}

static void write_all(int fd, const char *from, size_t size)
{
	while (size) {
		ssize_t count = write(fd, from, size);

		if (count <= 0)
			exit(0);
		from += count;
		size -= count;
	}
}

/* Opens a TCP connection over the loopback, and stores its two ends. */
static void connected(int ends[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (void *)&address, sizeof(address)) || listen(listener, 1) ||
	    getsockname(listener, (void *)&address, &length))
		fail("listening");
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(ends[0], (void *)&address, sizeof(address)))
		fail("connecting");
	ends[1] = accept(listener, NULL, NULL);
	if (ends[1] < 0)
		fail("accepting");
	close(listener);
	for (int end = 0; end < 2; end++)
		setsockopt(ends[end], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

/* Opens the two ends of a carrier, for the measuring process and for its peer. */
static void open_carrier(const char *over, struct ends *own, struct ends *peer)
{
	int there[2], back[2];

	if (!strcmp(over, "pipe")) {
		if (pipe(there) || pipe(back))
			fail("making pipes");
		*own = (struct ends){ back[0], there[1] };
		*peer = (struct ends){ there[0], back[1] };
		return;
	}
	if (!strcmp(over, "unix")) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, there))
			fail("making sockets");
	} else {
		connected(there);
	}
	*own = (struct ends){ there[0], there[0] };
	*peer = (struct ends){ there[1], there[1] };
}

static double round_trips(const struct ends *own, char *message, size_t size, double seconds,
			  double *lasted)
{
	double begun = now(), end = begun;
	uint64_t count = 0;

	while (now() - begun < WARM_UP) {
		write_all(own->out, message, size);
		read_all(own->in, message, size);
	}
	begun = end = now();
	/* weir perf also reads the clock at each round trip. */
	while (end - begun < seconds) {
		write_all(own->out, message, size);
		read_all(own->in, message, size);
		count++;
		end = now();
	}
	*lasted = end - begun;
	return count;
}

static double received(const struct ends *own, char *block, size_t size, double seconds)
{
	double begun, end;
	uint64_t bytes = 0;

	read_all(own->in, block, 1);
	for (begun = now(); now() - begun < WARM_UP;)
		if (read(own->in, block, size) <= 0)
			exit(1);
	begun = now();
	do {
		ssize_t count = read(own->in, block, size);

		if (count <= 0)
			exit(1);
		bytes += count;
		end = now();
	} while (end - begun < seconds);
	return bytes / (end - begun);
}

int main(int count, char **words)
{
	const char *test = count > 1 ? words[1] : "", *over = "tcp";
	int sends = !strcmp(test, "stream") || !strcmp(test, "bandwidth");
	int local = !strcmp(test, "latency") || !strcmp(test, "bandwidth");
	struct ends own, peer;
	double seconds, lasted;
	size_t size, most;
	char *block;
	pid_t child;

	if (count != 6 + local || !(sends || local || !strcmp(test, "rr"))) {
		fprintf(stderr, "usage: see the head of scripts/perf-references.c\n");
		return 2;
	}
	if (local)
		over = words[2];
	size = strtoul(words[2 + local], NULL, 10);
	seconds = strtod(words[3 + local], NULL);
	/* The reader of a stream takes all data that has arrived, whatever the size of the writes. */
	most = !strcmp(test, "stream") && size < 131072 ? 131072 : size;
	block = calloc(1, most);
	if (!block || !size)
		fail("making a buffer");
	open_carrier(over, &own, &peer);
	child = fork();
	if (child < 0)
		fail("starting the peer");
	if (!child) {
		close(own.in);
		if (own.out != own.in)
			close(own.out);
		signal(SIGPIPE, SIG_IGN);
		pin(atoi(words[5 + local]));
		for (;;) {
			if (!sends)
				read_all(peer.in, block, size);
			write_all(peer.out, block, size);
		}
	}
	close(peer.in);
	if (peer.out != peer.in)
		close(peer.out);
	pin(atoi(words[4 + local]));
	if (!strcmp(test, "stream")) {
		printf("%.3f\n", received(&own, block, most, seconds) * 8e-6);
	} else if (!strcmp(test, "bandwidth")) {
		printf("%.3f\n", received(&own, block, size, seconds) * 1e-6);
	} else {
		double trips = round_trips(&own, block, size, seconds, &lasted);

		printf("%.4f\n", local ? lasted / trips * 1e6 : trips / lasted);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
