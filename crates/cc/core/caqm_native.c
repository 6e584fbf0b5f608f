/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The core as functions, for crates/cc/src/caqm.rs. */
#include "caqm.h"

u64 weir_caqm_sizes(void)
{
	return sizeof(struct caqm_sender) << 16 | sizeof(struct caqm_receiver);
}

void weir_caqm_init(struct caqm_sender *s, const struct caqm_params *params, u32 cwnd, u32 rtt_us,
		    u64 now_us)
{
	caqm_init(s, params, cwnd, rtt_us, now_us);
}

void weir_caqm_measured(struct caqm_sender *s, u32 rtt_us, u64 now_us)
{
	caqm_measured(s, rtt_us, now_us);
}

u32 weir_caqm_request(struct caqm_sender *s, u32 segments)
{
	return caqm_request(s, segments);
}

void weir_caqm_answer(struct caqm_sender *s, u32 more, u32 fewer, u32 limited, u64 now_us)
{
	caqm_answer(s, more, fewer, limited, now_us);
}

void weir_caqm_on_timeout(struct caqm_sender *s, u64 now_us)
{
	caqm_on_timeout(s, now_us);
}

u32 weir_caqm_on_loss(struct caqm_sender *s, u64 now_us)
{
	return caqm_on_loss(s, now_us);
}

void weir_caqm_on_undo(struct caqm_sender *s)
{
	caqm_on_undo(s);
}

void weir_caqm_on_idle(struct caqm_sender *s, u32 window)
{
	caqm_on_idle(s, window);
}

void weir_caqm_owe(struct caqm_receiver *r, const struct caqm_params *params, u32 more, u32 refused,
		   u32 segments)
{
	caqm_owe(r, params, more, refused, segments);
}

u32 weir_caqm_tell(struct caqm_receiver *r, const struct caqm_params *params, u32 *fewer)
{
	return caqm_tell(r, params, fewer);
}
