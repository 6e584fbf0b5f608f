/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What `weir accel` and the program for open connections tell each other: src/open.rs has the same layout. */
#ifndef WEIR_ACCEL_OPEN_H
#define WEIR_ACCEL_OPEN_H

#include "flow.h"

struct order {
	u64 scope; /* the control group below which connections are ours to treat */
	char otherwise[CA_NAME]; /* for connections of which it is not known what they had before */
};

struct turned {
	u64 given;
	u64 put_back;
	u64 refused;
};

#endif
