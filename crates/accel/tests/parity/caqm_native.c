/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The native side of the parity test for CAQM's core; native.c has the side for tcpa's core. */
#include "caqm_parity.h"
#include <stddef.h>
#include <string.h>

void __real_weir_caqm_init(struct caqm_sender *s, const struct caqm_params *params, u32 cwnd, u32 rtt_us,
			   u64 now_us);
void __real_weir_caqm_measured(struct caqm_sender *s, u32 rtt_us, u64 now_us);
u32 __real_weir_caqm_request(struct caqm_sender *s, u32 segments);
void __real_weir_caqm_answer(struct caqm_sender *s, u32 more, u32 fewer, u32 limited, u64 now_us);
void __real_weir_caqm_on_timeout(struct caqm_sender *s, u64 now_us);
u32 __real_weir_caqm_on_loss(struct caqm_sender *s, u64 now_us);
void __real_weir_caqm_on_undo(struct caqm_sender *s);
void __real_weir_caqm_on_idle(struct caqm_sender *s, u32 window);
void __real_weir_caqm_owe(struct caqm_receiver *r, const struct caqm_params *params, u32 more, u32 refused,
			  u32 segments);
u32 __real_weir_caqm_tell(struct caqm_receiver *r, const struct caqm_params *params, u32 *fewer);

/* The test defines this function, which records a step before the core takes the step. */
void weir_caqm_parity_record(const struct caqm_step *step);

u64 weir_caqm_parity_size(void)
{
	return sizeof(struct caqm_step);
}

u64 weir_caqm_parity_told(void)
{
	return offsetof(struct caqm_step, told) << 32 | offsetof(struct caqm_step, sender);
}

/* Takes the step with the same object code that the tunnel and the simulator run. */
void weir_caqm_parity_take(struct caqm_step *step)
{
	const u32 *numbers = step->told.numbers;
	u64 now = step->told.now_us;

	switch (step->call) {
	case CAQM_INIT:
		memset(&step->sender, 0, sizeof(step->sender));
		__real_weir_caqm_init(&step->sender, &step->told.params, numbers[0], numbers[1], now);
		break;
	case CAQM_MEASURED:
		__real_weir_caqm_measured(&step->sender, numbers[0], now);
		break;
	case CAQM_REQUEST:
		step->answer = __real_weir_caqm_request(&step->sender, numbers[0]);
		break;
	case CAQM_ANSWER:
		__real_weir_caqm_answer(&step->sender, numbers[0], numbers[1], numbers[2], now);
		break;
	case CAQM_TIMEOUT:
		__real_weir_caqm_on_timeout(&step->sender, now);
		break;
	case CAQM_LOSS:
		step->answer = __real_weir_caqm_on_loss(&step->sender, now);
		break;
	case CAQM_UNDO:
		__real_weir_caqm_on_undo(&step->sender);
		break;
	case CAQM_IDLE:
		__real_weir_caqm_on_idle(&step->sender, numbers[0]);
		break;
	case CAQM_OWE:
		__real_weir_caqm_owe(&step->receiver, &step->told.params, numbers[0], numbers[1], numbers[2]);
		break;
	case CAQM_TELL:
		step->answer = __real_weir_caqm_tell(&step->receiver, &step->told.params, &step->fewer);
		break;
	default:
		break;
	}
}

static void record(u32 call, const struct caqm_sender *s, const struct caqm_receiver *r,
		   const struct caqm_params *params, u64 now, u32 first, u32 second, u32 third)
{
	struct caqm_step step;

	memset(&step, 0, sizeof(step));
	step.call = call;
	step.told.now_us = now;
	step.told.numbers[0] = first;
	step.told.numbers[1] = second;
	step.told.numbers[2] = third;
	if (params)
		step.told.params = *params;
	if (s)
		memcpy(&step.sender, s, sizeof(step.sender));
	if (r)
		step.receiver = *r;
	weir_caqm_parity_record(&step);
}

void __wrap_weir_caqm_init(struct caqm_sender *s, const struct caqm_params *params, u32 cwnd, u32 rtt_us,
			   u64 now_us)
{
	record(CAQM_INIT, NULL, NULL, params, now_us, cwnd, rtt_us, 0);
	__real_weir_caqm_init(s, params, cwnd, rtt_us, now_us);
}

void __wrap_weir_caqm_measured(struct caqm_sender *s, u32 rtt_us, u64 now_us)
{
	record(CAQM_MEASURED, s, NULL, NULL, now_us, rtt_us, 0, 0);
	__real_weir_caqm_measured(s, rtt_us, now_us);
}

u32 __wrap_weir_caqm_request(struct caqm_sender *s, u32 segments)
{
	record(CAQM_REQUEST, s, NULL, NULL, 0, segments, 0, 0);
	return __real_weir_caqm_request(s, segments);
}

void __wrap_weir_caqm_answer(struct caqm_sender *s, u32 more, u32 fewer, u32 limited, u64 now_us)
{
	record(CAQM_ANSWER, s, NULL, NULL, now_us, more, fewer, limited);
	__real_weir_caqm_answer(s, more, fewer, limited, now_us);
}

void __wrap_weir_caqm_on_timeout(struct caqm_sender *s, u64 now_us)
{
	record(CAQM_TIMEOUT, s, NULL, NULL, now_us, 0, 0, 0);
	__real_weir_caqm_on_timeout(s, now_us);
}

u32 __wrap_weir_caqm_on_loss(struct caqm_sender *s, u64 now_us)
{
	record(CAQM_LOSS, s, NULL, NULL, now_us, 0, 0, 0);
	return __real_weir_caqm_on_loss(s, now_us);
}

void __wrap_weir_caqm_on_undo(struct caqm_sender *s)
{
	record(CAQM_UNDO, s, NULL, NULL, 0, 0, 0, 0);
	__real_weir_caqm_on_undo(s);
}

void __wrap_weir_caqm_on_idle(struct caqm_sender *s, u32 window)
{
	record(CAQM_IDLE, s, NULL, NULL, 0, window, 0, 0);
	__real_weir_caqm_on_idle(s, window);
}

void __wrap_weir_caqm_owe(struct caqm_receiver *r, const struct caqm_params *params, u32 more, u32 refused,
			  u32 segments)
{
	record(CAQM_OWE, NULL, r, params, 0, more, refused, segments);
	__real_weir_caqm_owe(r, params, more, refused, segments);
}

u32 __wrap_weir_caqm_tell(struct caqm_receiver *r, const struct caqm_params *params, u32 *fewer)
{
	record(CAQM_TELL, NULL, r, params, 0, 0, 0, 0);
	return __real_weir_caqm_tell(r, params, fewer);
}
