/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A policy as `weir accel` writes it down for the kernel: src/rules.rs has the same layout. */
#ifndef WEIR_ACCEL_RULES_H
#define WEIR_ACCEL_RULES_H

#include "flow.h"

/* Zero is "any" in every condition, and "as it is" in every setting. Addresses are IPv6; IPv4 is
 * ::ffff:a.b.c.d. */
struct rule {
	u64 address[2]; /* in network byte order */
	u64 mask[2]; /* of it, the bits that count */
	u64 cgroup; /* its id, which is its folder's inode */
	u16 port; /* the local one */
	u8 accelerate; /* 0: leave the connection as it is */
	u8 unused;
	u32 rto_min_us;
	u32 rto_max_ms;
	u32 unused2;
};

/* Two sets, so that a new policy is written beside the old and becomes valid in one store. */
struct active {
	u32 set; /* 0 or 1 */
	u32 count;
};

#endif
