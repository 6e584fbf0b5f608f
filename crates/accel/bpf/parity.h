/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A call of tcpa's core, with the core's initial state. The BPF build and the native build must
 * give the same result. */
#ifndef WEIR_ACCEL_PARITY_H
#define WEIR_ACCEL_PARITY_H

#include "tcpa.h"

enum parity_call {
	PARITY_INIT,
	PARITY_ACK,
	PARITY_TIMEOUT,
	PARITY_IDLE,
	PARITY_NOTE,
	PARITY_CALLS,
};

struct parity_step {
	u32 call;
	u32 unused;
	/* Input of the core. The input comes first, so that a test can change the input without the
	 * struct's definition. */
	union {
		struct {
			struct tcpa_params params;
			struct cc_path path;
		} init;
		struct cc_ack ack;
		u64 idle_us;
	} told;
	/* The state: before the call as input, after the call as result. */
	struct tcpa state;
	struct cc_out out;
	struct cc_memory noted;
	u32 floor;
	u32 unused2;
};

CC_INLINE void parity_take(struct parity_step *step)
{
	switch (step->call) {
	case PARITY_INIT:
		__builtin_memset(&step->state, 0, sizeof(step->state));
		tcpa_init(&step->state, &step->told.init.params, &step->told.init.path);
		break;
	case PARITY_ACK:
		tcpa_on_ack(&step->state, &step->told.ack);
		break;
	case PARITY_TIMEOUT:
		tcpa_on_timeout(&step->state);
		break;
	case PARITY_IDLE:
		tcpa_on_idle(&step->state, step->told.idle_us);
		break;
	case PARITY_NOTE:
		tcpa_note(&step->state, &step->noted);
		break;
	default:
		break;
	}
	tcpa_decide(&step->state, &step->out);
	step->floor = tcpa_floor(&step->state);
}

#endif
