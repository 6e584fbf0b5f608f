/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The values of tcpa's maps. */
#ifndef WEIR_ACCEL_FLOW_H
#define WEIR_ACCEL_FLOW_H

#include "tcpa.h"

#define ACCEL_RULES 64
#define CA_NAME 16 /* TCP_CA_NAME_MAX of include/net/tcp.h */

/* Work of one connection, or of all connections that have ended. */
struct work {
	u64 bytes; /* new data sent */
	u64 segments; /* data segments, retransmissions included */
	u64 retransmitted; /* segments */
	u64 lost; /* segments that loss detection marked as lost */
	u64 duplicates; /* segments that arrived twice, as DSACK reports */
	u64 reordered; /* ACKs that showed reordering */
	u64 timeouts;
	u64 recoveries;
	u64 pauses; /* round trips in which the core paused to measure the path */
	u64 restarts; /* transmissions after an idle period */
	u64 recalled; /* 1: the connection began at a remembered rate */
	u64 remembered; /* 1: the connection left a memory of its path */
	u64 connections; /* connections that have ended; 0 for an open connection */
};

/* The state of one connection. */
struct flow {
	struct tcpa tcpa;
	/* Delivered bytes, summed up here because the kernel counts packets in 32 bits. */
	u64 delivered;
	u64 heard_us; /* time of the last ACK */
	u32 delivered_packets; /* tp->delivered when `delivered` was last updated */
	u32 lost_packets; /* the part of tp->lost already reported to the core */
	u32 rule; /* the rule with its tunables; see `settings` */
	u8 running; /* the state belongs to an established connection */
	u8 in_recovery;
	u16 min_window; /* the least window, in segments */
	char before[CA_NAME]; /* the algorithm that the rule replaced; empty: none */
	char given[CA_NAME]; /* the algorithm that the rule gave; empty: none */
	u64 file_threshold; /* bytes; a connection that delivered fewer leaves no memory */
	struct work began; /* the kernel's counters when the core took the connection */
	struct work done; /* what the core counted since then */
};

/* Tunables of the algorithm itself; the other tunables are socket options. */
struct tunables {
	u32 init_cwnd;
	u32 loss_init_cwnd;
	u32 memory_age_s; /* maximum age of a memory; 0: use none */
	u32 min_window; /* segments: no window is smaller */
	u64 file_threshold; /* bytes that a connection must deliver to leave a memory of its path */
	u32 no_pauses;
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
