/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counts the work of connections: the kernel's counters since the core took a connection, and the
 * core's own counters. */
#ifndef WEIR_ACCEL_WORK_H
#define WEIR_ACCEL_WORK_H

#include "kernel.h"
#include "maps.h"

/* Copies the kernel's counters of a connection, which count from its beginning. */
static __always_inline void work_of_kernel(const struct tcp_sock *tp, struct work *work)
{
	work->bytes = cc_less(tp->bytes_sent, tp->bytes_retrans);
	work->segments = tp->data_segs_out;
	work->retransmitted = tp->total_retrans;
	work->lost = tp->lost;
	work->duplicates = tp->dsack_dups;
	work->reordered = tp->reord_seen;
}

/* Computes the work since the core took the connection. All counters of the kernel except the bytes
 * are u32: a difference of u32 is right even if a counter has wrapped. */
static __always_inline void work_so_far(const struct tcp_sock *tp, const struct flow *flow,
					struct work *work)
{
	*work = flow->done;
	work->bytes = cc_less(tp->bytes_sent, tp->bytes_retrans) - flow->began.bytes;
	work->segments = tp->data_segs_out - (u32)flow->began.segments;
	work->retransmitted = tp->total_retrans - (u32)flow->began.retransmitted;
	work->lost = tp->lost - (u32)flow->began.lost;
	work->duplicates = tp->dsack_dups - (u32)flow->began.duplicates;
	work->reordered = tp->reord_seen - (u32)flow->began.reordered;
}

/* Adds a connection's work to the sum of this CPU. */
static __always_inline void work_ended(const struct tcp_sock *tp, const struct flow *flow)
{
	struct work work;
	struct work *sum;
	u32 zero = 0;

	sum = bpf_map_lookup_elem(&ended, &zero);
	if (!sum)
		return;
	work_so_far(tp, flow, &work);
	sum->bytes += work.bytes;
	sum->segments += work.segments;
	sum->retransmitted += work.retransmitted;
	sum->lost += work.lost;
	sum->duplicates += work.duplicates;
	sum->reordered += work.reordered;
	sum->timeouts += work.timeouts;
	sum->recoveries += work.recoveries;
	sum->pauses += work.pauses;
	sum->restarts += work.restarts;
	sum->recalled += work.recalled;
	sum->remembered += work.remembered;
	sum->connections++;
}

#endif
