// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Iterates over the storage of all connections with the algorithm, in every network namespace. */
#include "kernel.h"
#include "maps.h"
#include "view.h"

SEC("iter/bpf_sk_storage_map")
int look(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	const struct flow *flow = ctx->value;
	struct sock *sk = ctx->sk;
	struct view view = {};

	if (!sk || !flow)
		return 0;
	view.cookie = bpf_get_socket_cookie(sk);
	view.rate = tcpa_rate(&flow->tcpa);
	view.min_rtt_us = flow->tcpa.min_rtt;
	view.window = flow->tcpa.window;
	view.floor = tcpa_floor(&flow->tcpa);
	view.rule = flow->rule;
	view.mode = flow->tcpa.mode;
	view.rival = flow->tcpa.rival;
	view.running = flow->running;
	view.resuming = flow->tcpa.mode == TCPA_STARTUP && flow->tcpa.resuming != TCPA_AFRESH;
	__builtin_memcpy(view.before, flow->before, sizeof(view.before));
	/* An entry that does not fit is shown again in the next call. */
	bpf_seq_write(ctx->meta->seq, &view, sizeof(view));
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
