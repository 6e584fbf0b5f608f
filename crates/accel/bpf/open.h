/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Messages between `weir accel` and the program for open connections: src/open.rs has the same
 * layout. */
#ifndef WEIR_ACCEL_OPEN_H
#define WEIR_ACCEL_OPEN_H

#include "flow.h"

struct order {
	u64 scope; /* id of the control group below which the program changes connections */
	char otherwise[CA_NAME]; /* for connections whose earlier algorithm is unknown */
};

struct turned {
	u64 given;
	u64 put_back;
	u64 refused;
	u64 kept; /* connections whose program named the algorithm */
};

#endif
