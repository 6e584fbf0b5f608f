// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Adds tags to the packets that negotiated connections send on an interface, and removes them from
 * packets that arrive. A super-packet carries one tag in its metadata, where the kernel keeps a
 * VLAN tag. Segmentation and merging therefore work as usual. The tag counts once for each of its
 * segments.
 */
#include "caqm_kernel.h"
#include "caqm_maps.h"
#include "caqm_tag.h"
#include "caqm_window.h"

/* include/net/tcp_states.h */
#define TCP_LISTEN 10
#define TCP_NEW_SYN_RECV 12
#define AF_INET 2

/* Packets to tag before the peer has answered with a tag: a path
 * that drops tagged packets drops no more than these. */
#define UNHEARD 64U

struct vlans {
	u32 count;
	__be16 proto[MOST_VLANS];
	u16 tci[MOST_VLANS];
};

/* Remove the outermost VLAN tags, up to `count`. */
static __always_inline bool take_off(struct __sk_buff *skb, struct vlans *vlans, u32 count)
{
	vlans->count = 0;
	for (u32 at = 0; at < MOST_VLANS; at++) {
		if (at >= count)
			break;
		if (!skb->vlan_present)
			return false;
		vlans->proto[at] = skb->vlan_proto;
		vlans->tci[at] = skb->vlan_tci;
		if (bpf_skb_vlan_pop(skb))
			return false;
		vlans->count = at + 1;
	}
	return true;
}

static __always_inline void put_back(struct __sk_buff *skb, const struct vlans *vlans)
{
	if (vlans->count > 1)
		bpf_skb_vlan_push(skb, vlans->proto[1], vlans->tci[1]);
	if (vlans->count > 0)
		bpf_skb_vlan_push(skb, vlans->proto[0], vlans->tci[0]);
}

/* The tag's 16 bits for a data packet. */
static __always_inline u32 ask(struct caqm_record *record, u32 segments, u32 kind)
{
	u32 info = TAG_REQUEST | TAG_GO_AHEAD, hint;

	bpf_spin_lock(&record->lock);
	/* The handshake's last packet may carry data. */
	if (!record->goes_ahead || record->heard || record->sent_packets || record->sent_answers) {
		hint = caqm_request(&record->sender, segments);
		record->asked += (u64)hint * segments * record->sender.params.data_hint_unit;
		info = TAG_REQUEST | TAG_VALID | hint;
	}
	record->sent_packets++;
	record->sent_segments += segments;
	bpf_spin_unlock(&record->lock);
	return kind << TAG_KIND_SHIFT | info;
}

static __always_inline u32 answer(struct caqm_record *record, u32 kind)
{
	u32 units, fewer = 0;

	bpf_spin_lock(&record->lock);
	record->to_answer = 0;
	record->sent_answers++;
	if (record->goes_ahead && !record->heard) {
		/* The handshake's last packet, or its retransmission. */
		units = TAG_GO_AHEAD;
	} else {
		units = caqm_tell(&record->receiver, &record->sender.params, &fewer);
		if (units)
			units |= fewer ? TAG_CONGESTION : TAG_VALID;
	}
	bpf_spin_unlock(&record->lock);
	return kind << TAG_KIND_SHIFT | units;
}

SEC("tcx/egress")
int tag(struct __sk_buff *skb)
{
	const struct caqm_settings *settings;
	struct tagged frame = {};
	struct caqm_record *record;
	struct caqm_totals *count;
	struct sk_buff *kernel;
	struct sock___kept *kept;
	struct bpf_sock *sk;
	struct vlans vlans = {};
	u32 segments, info, tags;

	/* Most packets belong to connections without a record: they leave here. */
	kernel = bpf_cast_to_kern_ctx(skb);
	kept = kernel->sk;
	if (!kept || !kept->sk_bpf_storage)
		return TCX_NEXT;
	sk = skb->sk;
	if (!sk)
		return TCX_NEXT;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return TCX_NEXT;
	record = bpf_sk_storage_get(&records, sk, NULL, 0);
	if (!record || !record->running)
		return TCX_NEXT;
	settings = network_settings();
	count = totals_here();
	if (!settings || !count)
		return TCX_NEXT;
	/* `found`: an interface above this one has already tagged the packet. */
	if (!read_tagged(skb, record->tpid, &frame) || frame.found)
		return TCX_NEXT;
	if (frame.flags & (TCP_SYN | TCP_RST))
		return TCX_NEXT;
	if (!record->heard && record->sent_packets + record->sent_answers >= UNHEARD)
		return TCX_NEXT;
	tags = skb->vlan_present;
	if (frame.payload) {
		if (!record->sending)
			return TCX_NEXT;
		segments = cc_max(skb->gso_segs, 1);
		info = ask(record, segments, settings->kind);
		count->sent_packets++;
		count->sent_segments += segments;
		count->sent_super += segments > 1;
	} else {
		/* An ACK without an answer needs no tag. The first one has a tag to show the peer
		 * that tags arrive. */
		if ((frame.flags & TCP_FIN) ||
		    (!record->to_answer && record->heard && !record->receiver.fewer &&
		     record->receiver.more < record->sender.params.ack_hint_unit))
			return TCX_NEXT;
		info = answer(record, settings->kind);
		count->sent_answers++;
	}
	if (take_off(skb, &vlans, tags))
		bpf_skb_vlan_push(skb, bpf_htons(record->tpid), info);
	put_back(skb, &vlans);
	return TCX_NEXT;
}

/* Another CPU may change these numbers meanwhile. Read the ends of both windows last, so that
 * neither seems smaller than it was when the segment was sent. */
static __always_inline bool is_of(struct bpf_sock *sk, const struct tagged *frame)
{
	struct tcp_sock___numbers *tp = (void *)bpf_skc_to_tcp_sock(sk);
	struct caqm_window window;

	if (!tp)
		return false;
	window.offered = tp->rcv_wnd;
	window.overtaken = tp->window_clamp;
	window.acked = tp->snd_una;
	window.granted = tp->max_window;
	barrier();
	window.received = tp->rcv_nxt;
	window.written = tp->write_seq;
	return caqm_is_plausible(&window, frame->sequence, frame->acknowledgement);
}

/* With SYN cookies, a listening socket receives the handshake's last packet. caqm_negotiate.bpf.c
 * compares its numbers with those of the new connection. */
static __always_inline bool may_begin(struct bpf_sock *sk, const struct tagged *frame)
{
	struct tcp_request_sock *request;
	struct sock_common___offering *offering;
	struct caqm_window window = {};

	if (sk->state == TCP_LISTEN)
		return true;
	request = bpf_skc_to_tcp_request_sock(sk);
	if (!request)
		return false;
	window.received = request->rcv_nxt;
	offering = (void *)request;
	window.offered = BPF_CORE_READ(offering, skc_rcv_wnd);
	window.acked = request->snt_isn + 1;
	return caqm_may_begin(&window, frame->sequence, frame->acknowledgement);
}

static __always_inline void hear(struct caqm_record *record, const struct tagged *frame,
				 u32 segments)
{
	u32 hint = frame->info & TAG_HINT;
	u32 more = tag_more(frame->info);
	bool fewer = tag_fewer(frame->info);
	u32 unit, most;

	bpf_spin_lock(&record->lock);
	record->heard++;
	unit = record->sender.params.data_hint_unit;
	if (frame->info & TAG_REQUEST) {
		if (more || fewer)
			caqm_owe(&record->receiver, &record->sender.params, more, fewer, segments);
		record->approved += (u64)more * segments * unit;
		if (fewer)
			record->denied += (u64)record->sender.params.beta * segments;
		record->to_answer = 1;
		record->heard_packets++;
		record->heard_segments += segments;
	} else {
		if (more) {
			/* A peer cannot gain by reporting more than was requested. */
			most = cc_div((u64)record->sender.asked + record->sender.asked_before,
				      record->sender.params.ack_hint_unit);
			record->more = cc_min((u64)record->more + more, most);
		} else if (fewer && hint) {
			record->fewer = cc_min((u64)record->fewer + hint, CAQM_MOST_BYTES);
		} else if (!tag_goes_ahead(frame->info)) {
			record->nothing = 1;
		}
		record->heard_answers++;
	}
	bpf_spin_unlock(&record->lock);
}

/* Remember a tag that arrives before there is a connection: the tag of the handshake's last ACK
 * shows that both ends offered CAQM, and that tags pass. */
static __always_inline void expect(struct __sk_buff *skb, const struct tagged *frame)
{
	struct sk_buff *kernel = bpf_cast_to_kern_ctx(skb);
	struct caqm_first first = {
		.at_ns = bpf_ktime_get_ns(),
		.info = frame->info,
		.sequence = frame->sequence,
		.acknowledgement = frame->acknowledgement,
	};
	struct caqm_pending key = {};

	key.netns = BPF_CORE_READ(kernel, dev, nd_net.net, net_cookie);
	if (frame->ipv6) {
		__builtin_memcpy(key.remote, frame->tuple.ipv6.saddr, 16);
		__builtin_memcpy(key.local, frame->tuple.ipv6.daddr, 16);
		key.remote_port = frame->tuple.ipv6.sport;
		key.local_port = frame->tuple.ipv6.dport;
	} else {
		key.remote[2] = bpf_htonl(0xffff);
		key.remote[3] = frame->tuple.ipv4.saddr;
		key.local[2] = bpf_htonl(0xffff);
		key.local[3] = frame->tuple.ipv4.daddr;
		key.remote_port = frame->tuple.ipv4.sport;
		key.local_port = frame->tuple.ipv4.dport;
	}
	bpf_map_update_elem(&pending, &key, &first, BPF_ANY);
}

static __always_inline void deliver(struct __sk_buff *skb, struct tagged *frame,
				    struct caqm_totals *count)
{
	u32 segments = cc_max(skb->gso_segs, 1);
	struct caqm_record *record;
	struct bpf_sock *sk;

	if (frame->info & TAG_REQUEST) {
		count->heard_packets++;
		count->heard_segments += segments;
		count->heard_super += segments > 1;
	} else {
		count->heard_answers++;
	}
	if (frame->ipv6)
		sk = bpf_skc_lookup_tcp(skb, &frame->tuple, sizeof(frame->tuple.ipv6),
					BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_skc_lookup_tcp(skb, &frame->tuple, sizeof(frame->tuple.ipv4),
					BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return;
	if (sk->state == TCP_NEW_SYN_RECV || sk->state == TCP_LISTEN) {
		if (may_begin(sk, frame))
			expect(skb, frame);
		else
			count->implausible++;
	} else {
		record = bpf_sk_storage_get(&records, sk, NULL, 0);
		if (record && is_of(sk, frame))
			hear(record, frame, segments);
		else if (record)
			count->implausible++;
	}
	bpf_sk_release(sk);
}

SEC("tcx/ingress")
int untag(struct __sk_buff *skb)
{
	const struct caqm_settings *settings;
	struct tagged frame = {};
	struct vlans vlans = {};
	struct caqm_totals *count;

	/* Linux has moved the outermost tag into the packet's metadata by now. */
	if (!skb->vlan_present)
		return TCX_NEXT;
	settings = network_settings();
	count = totals_here();
	if (!settings || !count)
		return TCX_NEXT;
	if (!read_tagged(skb, settings->tpid, &frame) || !frame.found)
		return TCX_NEXT;
	if (frame.info >> TAG_KIND_SHIFT != settings->kind) {
		count->alone++;
		return TCX_NEXT;
	}
	deliver(skb, &frame, count);
	if (take_off(skb, &vlans, frame.vlans))
		bpf_skb_vlan_pop(skb);
	put_back(skb, &vlans);
	return TCX_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
