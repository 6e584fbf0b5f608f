/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The cores as functions, for crates/cc/src/core.rs. */
#include "tcpa.h"

u64 weir_tcpa_size(void)
{
	return sizeof(struct tcpa);
}

void weir_tcpa_init(struct tcpa *t, const struct tcpa_params *params, const struct cc_path *path)
{
	tcpa_init(t, params, path);
}

void weir_tcpa_on_ack(struct tcpa *t, const struct cc_ack *ack, struct cc_out *out)
{
	tcpa_on_ack(t, ack);
	tcpa_decide(t, out);
}

void weir_tcpa_on_timeout(struct tcpa *t, struct cc_out *out)
{
	tcpa_on_timeout(t);
	tcpa_decide(t, out);
}

void weir_tcpa_on_idle(struct tcpa *t, u64 now_us, struct cc_out *out)
{
	tcpa_on_idle(t, now_us);
	tcpa_decide(t, out);
}

u32 weir_tcpa_note(const struct tcpa *t, struct cc_memory *memory)
{
	return tcpa_note(t, memory);
}

u32 weir_tcpa_floor(const struct tcpa *t)
{
	return tcpa_floor(t);
}

void weir_tcpa_decide(const struct tcpa *t, struct cc_out *out)
{
	tcpa_decide(t, out);
}
