/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The values of the maps. */
#ifndef WEIR_ACCEL_FLOW_H
#define WEIR_ACCEL_FLOW_H

#include "tcpa.h"

#define ACCEL_RULES 64
#define CA_NAME 16 /* TCP_CA_NAME_MAX of include/net/tcp.h */

/* The state of one connection. */
struct flow {
	struct tcpa tcpa;
	/* Bytes; the kernel counts packets in 32 bits. */
	u64 delivered;
	u64 heard_us; /* time of the last ACK */
	u32 delivered_packets; /* tp->delivered at that byte count */
	u32 lost_packets; /* the part of tp->lost already reported to the core */
	u32 rule; /* the rule with its tunables; see `settings` */
	u8 running; /* the state belongs to an established connection */
	u8 in_recovery;
	u8 unused[2];
	char before[CA_NAME]; /* the algorithm that the rule replaced; empty: none */
	char given[CA_NAME]; /* the algorithm that the rule gave; empty: none */
};

/* Tunables of the algorithm itself; the others are socket options. */
struct tunables {
	u32 init_cwnd;
	u32 loss_init_cwnd;
	u32 memory_age_s; /* maximum age of a memory; 0: use none */
	u32 unused;
};

/* The destination of a connection: an IPv6 /48 or an IPv4 /24, which is ::ffff:a.b.c.0 here. */
struct place {
	u64 address[2]; /* in network byte order */
};

/* The last connection's estimate of the path when it ended. */
struct memory {
	u64 at_ns; /* CLOCK_MONOTONIC */
	u64 rate; /* bytes a second */
	u32 min_rtt_us;
	u32 unused;
};

#endif
