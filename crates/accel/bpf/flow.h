/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The values of the maps. */
#ifndef WEIR_ACCEL_FLOW_H
#define WEIR_ACCEL_FLOW_H

#include "tcpa.h"

#define ACCEL_RULES 64
#define CA_NAME 16 /* TCP_CA_NAME_MAX of include/net/tcp.h */

/* What is kept of one connection. */
struct flow {
	struct tcpa tcpa;
	/* Bytes; the kernel counts packets in 32 bits. */
	u64 delivered;
	u64 heard_us; /* when the last acknowledgement came */
	u32 delivered_packets; /* tp->delivered at that count */
	u32 lost_packets; /* tp->lost, so far as the core was told */
	u32 rule; /* whose tunables; see `settings` */
	u8 running; /* the state is that of a connection under way */
	u8 in_recovery;
	u8 unused[2];
	char before[CA_NAME]; /* the algorithm that a rule's took the place of; empty: none did */
};

/* Those of the algorithm itself; the others are options of the socket. */
struct tunables {
	u32 init_cwnd;
	u32 loss_init_cwnd;
	u32 memory_age_s; /* how old a memory may be; 0: none is used */
	u32 unused;
};

/* Where a connection leads: an IPv6 /48 or an IPv4 /24, which is ::ffff:a.b.c.0 here. */
struct place {
	u64 address[2]; /* in network byte order */
};

/* What the last connection there knew of the path when it ended. */
struct memory {
	u64 at_ns; /* CLOCK_MONOTONIC */
	u64 rate; /* bytes a second */
	u32 min_rtt_us;
	u32 unused;
};

#endif
