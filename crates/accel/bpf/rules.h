/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A policy in the format that `weir accel` writes for the kernel: src/rules.rs has the same
 * layout. */
#ifndef WEIR_ACCEL_RULES_H
#define WEIR_ACCEL_RULES_H

#include "flow.h"

/* The rule also matches connections whose program named an algorithm. */
#define RULE_NAMED_TOO 1
/* CAQM's program runs first, and sets reno on connections that it declines. */
#define RULE_AFTER_CAQM 2

/* A rule. Zero means "any" in a condition, and "unchanged" in a setting. Addresses are IPv6; IPv4
 * is ::ffff:a.b.c.d. */
struct rule {
	u64 address[2]; /* in network byte order */
	u64 mask[2]; /* the bits of the address that count */
	u64 cgroup; /* id of the control group: the inode of the group's directory */
	u16 port; /* the local port */
	u8 accelerate; /* 0: leave the connection as it is */
	u8 flags; /* RULE_ */
	u32 rto_min_us;
	u32 rto_max_ms;
	u32 unused2;
	char algorithm[CA_NAME]; /* tcpa, or an algorithm of the kernel */
};

/* The active set of two sets of rules. `weir accel` writes a new policy into the inactive set, and
 * activates the new policy with a single store. */
struct active {
	u32 set; /* 0 or 1 */
	u32 count;
};

#endif
