/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A policy as `weir accel` writes it down for the kernel: src/rules.rs has the same layout. */
#ifndef WEIR_ACCEL_RULES_H
#define WEIR_ACCEL_RULES_H

#include "flow.h"

/* Zero is "any" in every condition. Addresses are IPv6; IPv4 is ::ffff:a.b.c.d. */
struct rule {
	u64 cgroup; /* its id, as the inode of its folder */
	u64 namespace; /* the network namespace's cookie */
	u8 address[16];
	u32 prefix; /* bits; 0: any */
	u32 cgroup_level; /* the root is 0 */
	u16 port; /* the local one */
	u8 accelerate; /* 0: leave the connection as it is */
	u8 unused[5];
	u32 rto_min_us; /* 0: as it is */
	u32 rto_max_ms;
	u32 send_buffer;
	u32 unused2;
};

/* Two sets, so that a new policy is written beside the old and becomes valid in one store. */
struct active {
	u32 set; /* 0 or 1 */
	u32 count;
};

#endif
