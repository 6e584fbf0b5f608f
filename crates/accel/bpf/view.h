/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the core believes of a connection's path, for `weir accel status`: src/core_view.rs has the same layout. */
#ifndef WEIR_ACCEL_VIEW_H
#define WEIR_ACCEL_VIEW_H

#include "flow.h"

struct view {
	u64 cookie; /* by which the kernel knows the socket */
	u64 rate; /* bytes a second that the path delivers at its best */
	u32 min_rtt_us;
	u32 window; /* bytes to be held in the network; 0: not yet known */
	u32 floor; /* of 1024 segments, those the path loses by itself */
	u32 rule; /* whose tunables; see `settings` */
	u8 mode; /* enum tcpa_mode */
	u8 rival; /* it has to share with others than its own kind */
	u8 running;
	u8 resuming; /* what is remembered of the path decides */
	u8 unused[4];
	char before[CA_NAME];
};

_Static_assert(sizeof(struct view) == 56, "as src/core_view.rs reads it");

#endif
