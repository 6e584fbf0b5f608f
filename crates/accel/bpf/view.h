/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The core's estimate of a connection's path, for `weir accel status`: src/core_view.rs has the
 * same layout. */
#ifndef WEIR_ACCEL_VIEW_H
#define WEIR_ACCEL_VIEW_H

#include "flow.h"

struct view {
	u64 cookie; /* the kernel's id of the socket */
	u64 rate; /* bytes a second: the best rate that the path delivers */
	u32 min_rtt_us;
	u32 window; /* bytes to hold in the network; 0: not yet known */
	u32 floor; /* segments of 1024 that the path loses even at a low rate */
	u32 rule; /* the rule with its tunables; see `settings` */
	u8 mode; /* enum tcpa_mode */
	u8 rival; /* the flow competes with other algorithms */
	u8 running;
	u8 resuming; /* 1: the flow sends by a remembered rate */
	u8 unused[4];
	char before[CA_NAME];
	struct work work; /* work since the core took the connection */
};

_Static_assert(sizeof(struct view) == 160, "as src/core_view.rs reads it");

#endif
