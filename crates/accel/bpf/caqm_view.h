/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A negotiated connection for `weir accel status`: src/caqm/view.rs has the same layout. */
#ifndef WEIR_ACCEL_CAQM_VIEW_H
#define WEIR_ACCEL_CAQM_VIEW_H

#include "caqm_flow.h"

struct caqm_view {
	u64 cookie; /* the kernel's id of the socket */
	u64 asked; /* bytes, as all fields up to `denied` */
	u64 granted;
	u64 refused;
	u64 approved;
	u64 denied;
	u32 owed_more;
	u32 owed_fewer;
	u32 cwnd; /* segments */
	u32 sent_packets;
	u32 sent_segments;
	u32 sent_answers;
	u32 heard_packets;
	u32 heard_segments;
	u32 heard_answers;
	u8 start;
	u8 sending;
	u8 heard;
	u8 unused;
};

_Static_assert(sizeof(struct caqm_view) == 88, "as src/caqm/view.rs reads it");

#endif
