/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A call of CAQM's core, with the core's initial state. The BPF build and the native build must
 * give the same result. */
#ifndef WEIR_ACCEL_CAQM_PARITY_H
#define WEIR_ACCEL_CAQM_PARITY_H

#include "caqm.h"

enum caqm_call {
	CAQM_INIT,
	CAQM_MEASURED,
	CAQM_REQUEST,
	CAQM_ANSWER,
	CAQM_TIMEOUT,
	CAQM_LOSS,
	CAQM_UNDO,
	CAQM_IDLE,
	CAQM_OWE,
	CAQM_TELL,
	CAQM_CALLS,
};

struct caqm_step {
	u32 call;
	u32 unused;
	/* Input of the core. The input comes first, so that a test can change the input without the
	 * struct's definition. */
	struct {
		u64 now_us;
		u32 numbers[4];
		struct caqm_params params;
	} told;
	/* The state: before the call as input, after the call as result. */
	struct caqm_sender sender;
	struct caqm_receiver receiver;
	u32 answer;
	u32 fewer;
};

CC_INLINE void caqm_take(struct caqm_step *step)
{
	const u32 *numbers = step->told.numbers;
	u64 now = step->told.now_us;

	switch (step->call) {
	case CAQM_INIT:
		__builtin_memset(&step->sender, 0, sizeof(step->sender));
		caqm_init(&step->sender, &step->told.params, numbers[0], numbers[1], now);
		break;
	case CAQM_MEASURED:
		caqm_measured(&step->sender, numbers[0], now);
		break;
	case CAQM_REQUEST:
		step->answer = caqm_request(&step->sender, numbers[0]);
		break;
	case CAQM_ANSWER:
		caqm_answer(&step->sender, numbers[0], numbers[1], numbers[2], now);
		break;
	case CAQM_TIMEOUT:
		caqm_on_timeout(&step->sender, now);
		break;
	case CAQM_LOSS:
		step->answer = caqm_on_loss(&step->sender, now);
		break;
	case CAQM_UNDO:
		caqm_on_undo(&step->sender);
		break;
	case CAQM_IDLE:
		caqm_on_idle(&step->sender, numbers[0]);
		break;
	case CAQM_OWE:
		caqm_owe(&step->receiver, &step->told.params, numbers[0], numbers[1], numbers[2]);
		break;
	case CAQM_TELL:
		step->answer = caqm_tell(&step->receiver, &step->told.params, &step->fewer);
		break;
	default:
		break;
	}
}

#endif
