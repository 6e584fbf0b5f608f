/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The native side of the parity test. The linker puts the __wrap_ functions between
 * crates/cc/src/core.rs and the core (ld's --wrap), so that the functions record every call of a
 * simulated connection, whatever the structs contain.
 */
#include "parity.h"
#include <stddef.h>
#include <string.h>

void __real_weir_tcpa_init(struct tcpa *t, const struct tcpa_params *params, const struct cc_path *path);
void __real_weir_tcpa_on_ack(struct tcpa *t, const struct cc_ack *ack, struct cc_out *out);
void __real_weir_tcpa_on_timeout(struct tcpa *t, struct cc_out *out);
u32 __real_weir_tcpa_note(const struct tcpa *t, struct cc_memory *memory);
void __real_weir_tcpa_on_idle(struct tcpa *t, u64 now_us, struct cc_out *out);

/* The test defines this function, which records a step before the core takes the step. */
void weir_parity_record(const struct parity_step *step);

u64 weir_parity_size(void)
{
	return sizeof(struct parity_step);
}

u64 weir_parity_told_offset(void)
{
	return offsetof(struct parity_step, told);
}

u64 weir_parity_told_size(void)
{
	return sizeof(((struct parity_step *)0)->told);
}

u64 weir_parity_result_offset(void)
{
	return offsetof(struct parity_step, state);
}

/* Takes the step with the same object code that the tunnel and the simulator run. */
void weir_parity_take(struct parity_step *step)
{
	switch (step->call) {
	case PARITY_INIT:
		memset(&step->state, 0, sizeof(step->state));
		__real_weir_tcpa_init(&step->state, &step->told.init.params, &step->told.init.path);
		tcpa_decide(&step->state, &step->out);
		break;
	case PARITY_ACK:
		__real_weir_tcpa_on_ack(&step->state, &step->told.ack, &step->out);
		break;
	case PARITY_TIMEOUT:
		__real_weir_tcpa_on_timeout(&step->state, &step->out);
		break;
	case PARITY_IDLE:
		__real_weir_tcpa_on_idle(&step->state, step->told.idle_us, &step->out);
		break;
	case PARITY_NOTE:
		__real_weir_tcpa_note(&step->state, &step->noted);
		tcpa_decide(&step->state, &step->out);
		break;
	default:
		tcpa_decide(&step->state, &step->out);
		break;
	}
	step->floor = tcpa_floor(&step->state);
}

void __wrap_weir_tcpa_init(struct tcpa *t, const struct tcpa_params *params, const struct cc_path *path)
{
	struct parity_step step;

	memset(&step, 0, sizeof(step));
	step.call = PARITY_INIT;
	step.told.init.params = *params;
	step.told.init.path = *path;
	weir_parity_record(&step);
	__real_weir_tcpa_init(t, params, path);
}

void __wrap_weir_tcpa_on_ack(struct tcpa *t, const struct cc_ack *ack, struct cc_out *out)
{
	struct parity_step step;

	memset(&step, 0, sizeof(step));
	step.call = PARITY_ACK;
	step.told.ack = *ack;
	memcpy(&step.state, t, sizeof(step.state));
	weir_parity_record(&step);
	__real_weir_tcpa_on_ack(t, ack, out);
}

void __wrap_weir_tcpa_on_timeout(struct tcpa *t, struct cc_out *out)
{
	struct parity_step step;

	memset(&step, 0, sizeof(step));
	step.call = PARITY_TIMEOUT;
	memcpy(&step.state, t, sizeof(step.state));
	weir_parity_record(&step);
	__real_weir_tcpa_on_timeout(t, out);
}

void __wrap_weir_tcpa_on_idle(struct tcpa *t, u64 now_us, struct cc_out *out)
{
	struct parity_step step;

	memset(&step, 0, sizeof(step));
	step.call = PARITY_IDLE;
	step.told.idle_us = now_us;
	memcpy(&step.state, t, sizeof(step.state));
	weir_parity_record(&step);
	__real_weir_tcpa_on_idle(t, now_us, out);
}

u32 __wrap_weir_tcpa_note(const struct tcpa *t, struct cc_memory *memory)
{
	struct parity_step step;

	memset(&step, 0, sizeof(step));
	step.call = PARITY_NOTE;
	memcpy(&step.state, t, sizeof(step.state));
	weir_parity_record(&step);
	return __real_weir_tcpa_note(t, memory);
}
