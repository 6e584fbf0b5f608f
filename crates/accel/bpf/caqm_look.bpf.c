// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reads the records of the negotiated connections, one network namespace at a time: hardened
 * kernels refuse an iterator over all namespaces. The kernel may show a connection twice.
 */
#include "caqm_kernel.h"
#include "caqm_maps.h"
#include "caqm_view.h"

SEC("iter/tcp")
int look(struct bpf_iter__tcp *ctx)
{
	const struct caqm_record *record;
	struct caqm_view view = {};
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp;

	tp = common ? bpf_skc_to_tcp_sock(common) : NULL;
	record = tp ? bpf_sk_storage_get(&records, tp, NULL, 0) : NULL;
	if (!record)
		return 0;
	view.cookie = bpf_get_socket_cookie(tp);
	view.asked = record->asked;
	view.granted = record->granted;
	view.refused = record->refused;
	view.approved = record->approved;
	view.denied = record->denied;
	view.owed_more = record->receiver.more;
	view.owed_fewer = record->receiver.fewer;
	view.cwnd = record->sender.cwnd;
	view.sent_packets = record->sent_packets;
	view.sent_segments = record->sent_segments;
	view.sent_answers = record->sent_answers;
	view.heard_packets = record->heard_packets;
	view.heard_segments = record->heard_segments;
	view.heard_answers = record->heard_answers;
	view.start = record->sender.start;
	view.sending = record->sending;
	view.heard = record->heard != 0;
	/* If an entry does not fit, the kernel shows it again in the next call. */
	bpf_seq_write(ctx->meta->seq, &view, sizeof(view));
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
