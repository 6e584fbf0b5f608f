// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Adds tags to the packets that negotiated connections send on an interface, and removes tags from
 * packets that arrive. A super-packet carries one tag in its metadata, where the kernel keeps a
 * VLAN tag, so segmentation and merging work as usual. The tag counts once for each segment
 * of the super-packet.
 */
#include "caqm_kernel.h"
#include "caqm_maps.h"
#include "caqm_tag.h"
#include "caqm_window.h"

/* include/net/tcp_states.h */
#define TCP_SYN_SENT 2
#define TCP_LISTEN 10
#define TCP_NEW_SYN_RECV 12
#define AF_INET 2

/* Maximum number of packets to tag before the peer has answered with a tag: a path that drops
 * tagged packets drops no more than these packets. */
#define UNHEARD 64U
/* Maximum number of pure ACKs among these packets: on a path that drops tagged packets, the
 * handshake must end without tags. */
#define UNHEARD_ANSWERS 2U
/* Maximum number of SYNs with the bit. Further SYNs omit the bit, in case a network drops SYNs with
 * the bit. */
#define OFFERS 2U

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

/* Builds the key of a frame's connection. `leaves`: the frame goes to the peer. */
static __always_inline void key_of(struct caqm_pending *key, struct __sk_buff *skb,
				   const struct tagged *frame, bool leaves)
{
	struct sk_buff *kernel = bpf_cast_to_kern_ctx(skb);
	u32 from[4] = {}, to[4] = {};
	u16 from_port, to_port;

	__builtin_memset(key, 0, sizeof(*key));
	key->netns = BPF_CORE_READ(kernel, dev, nd_net.net, net_cookie);
	if (frame->ipv6) {
		__builtin_memcpy(from, frame->tuple.ipv6.saddr, 16);
		__builtin_memcpy(to, frame->tuple.ipv6.daddr, 16);
		from_port = frame->tuple.ipv6.sport;
		to_port = frame->tuple.ipv6.dport;
	} else {
		from[2] = bpf_htonl(0xffff);
		from[3] = frame->tuple.ipv4.saddr;
		to[2] = bpf_htonl(0xffff);
		to[3] = frame->tuple.ipv4.daddr;
		from_port = frame->tuple.ipv4.sport;
		to_port = frame->tuple.ipv4.dport;
	}
	__builtin_memcpy(key->remote, leaves ? to : from, 16);
	__builtin_memcpy(key->local, leaves ? from : to, 16);
	key->remote_port = leaves ? to_port : from_port;
	key->local_port = leaves ? from_port : to_port;
}

/* Returns the tag's 16 bits for a data packet. */
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
		/* This packet is the handshake's last packet, or its retransmission. */
		units = TAG_GO_AHEAD;
	} else {
		units = caqm_tell(&record->receiver, &record->sender.params, &fewer);
		/* The reference kernel marks a hint of zero as valid, too. */
		if (units || record->by_bits)
			units |= fewer && units ? TAG_CONGESTION : TAG_VALID;
	}
	bpf_spin_unlock(&record->lock);
	return kind << TAG_KIND_SHIFT | units;
}

/* Sets the server's bit on a SYN-ACK whose SYN had the client's bit, if a rule matches. */
static __noinline int agree_by_bit(struct __sk_buff *skb)
{
	const struct caqm_settings *settings = network_settings();
	const struct caqm_asked *by_client;
	struct tagged frame = {};
	struct caqm_pending key;

	if (!settings || !(settings->negotiation & NEGOTIATE_BITS))
		return 0;
	if (!read_tagged(skb, settings->tpid, &frame) || frame.found)
		return 0;
	if ((frame.flags & (TCP_SYN | TCP_ACK)) != (TCP_SYN | TCP_ACK))
		return 0;
	key_of(&key, skb, &frame, true);
	by_client = bpf_map_lookup_elem(&asked, &key);
	if (by_client && by_client->accepted)
		write_reserved(skb, &frame,
			       (frame.length_and_reserved & TCP_RESERVED) | BIT_OF_SERVER);
	return 0;
}

/* Sets the bit on a SYN of a socket that offers, unless the SYN asks for ECN: with the bit such a
 * SYN would ask for accurate ECN (RFC 9768). */
static __always_inline void offer_by_bit(struct __sk_buff *skb, struct bpf_sock *sk)
{
	const struct caqm_settings *settings = network_settings();
	struct tagged frame = {};
	struct caqm_offer *offer;

	if (!settings || !(settings->negotiation & NEGOTIATE_BITS))
		return;
	offer = bpf_sk_storage_get(&offered, sk, NULL, 0);
	if (!offer || offer->sent >= OFFERS || !read_tagged(skb, settings->tpid, &frame))
		return;
	if ((frame.flags & (TCP_SYN | TCP_ACK | TCP_ECE | TCP_CWR)) != TCP_SYN ||
	    frame.length_and_reserved & TCP_RESERVED)
		return;
	offer->sent++;
	write_reserved(skb, &frame, BIT_OF_CLIENT);
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

	/* Most packets belong to connections without a record, and need nothing more. */
	kernel = bpf_cast_to_kern_ctx(skb);
	kept = kernel->sk;
	if (!kept)
		return TCX_NEXT;
	/* A request socket, which sends the SYN-ACK, is smaller than other sockets: handle a
	 * request socket before any further field is read. */
	if (kept->__sk_common.skc_state == TCP_NEW_SYN_RECV) {
		agree_by_bit(skb);
		return TCX_NEXT;
	}
	if (!kept->sk_bpf_storage)
		return TCX_NEXT;
	sk = skb->sk;
	if (!sk)
		return TCX_NEXT;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return TCX_NEXT;
	if (sk->state == TCP_SYN_SENT) {
		offer_by_bit(skb, sk);
		return TCX_NEXT;
	}
	record = bpf_sk_storage_get(&records, sk, NULL, 0);
	if (!record || !record->running)
		return TCX_NEXT;
	settings = network_settings();
	count = totals_here();
	if (!settings || !count)
		return TCX_NEXT;
	/* `found`: an interface above this interface has already tagged the packet. */
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
		/* An ACK without an answer needs no tag, except for the first ACK: its tag shows
		 * the peer that tags arrive. */
		if ((frame.flags & TCP_FIN) ||
		    (!record->to_answer && record->heard && !record->receiver.fewer &&
		     record->receiver.more < record->sender.params.ack_hint_unit))
			return TCX_NEXT;
		if (!record->heard && record->sent_answers >= UNHEARD_ANSWERS)
			return TCX_NEXT;
		info = answer(record, settings->kind);
		count->sent_answers++;
	}
	if (take_off(skb, &vlans, tags))
		bpf_skb_vlan_push(skb, bpf_htons(record->tpid), info);
	put_back(skb, &vlans);
	return TCX_NEXT;
}

/* Whether the segment can belong to the connection. Another CPU may change these numbers while this
 * function reads them. Read the ends of both windows last, so that no window seems smaller than
 * when the segment was sent. */
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

/* Whether the segment may be the last of a handshake. With SYN cookies, a listening socket receives
 * that segment; caqm_negotiate.bpf.c compares its numbers with those of the new connection. */
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
			/* A peer must not gain by granting more than this end has requested. */
			most = cc_div((u64)record->sender.asked + record->sender.asked_before,
				      record->sender.params.ack_hint_unit);
			record->more = cc_min((u64)record->more + more, most);
		} else if (fewer && hint) {
			record->fewer = cc_min((u64)record->fewer + hint, CAQM_MOST_BYTES);
		} else if (!tag_goes_ahead(frame->info) || record->by_bits) {
			record->nothing = 1;
		}
		record->heard_answers++;
	}
	bpf_spin_unlock(&record->lock);
}

/* Remember a tag that arrives before its connection is established: the tag of the handshake's last
 * ACK shows that both ends offered CAQM, and that tags pass. */
static __always_inline void expect(struct __sk_buff *skb, const struct tagged *frame)
{
	struct caqm_first first = {
		.at_ns = bpf_ktime_get_ns(),
		.info = frame->info,
		.sequence = frame->sequence,
		.acknowledgement = frame->acknowledgement,
		.segments = cc_max(skb->gso_segs, 1),
	};
	struct caqm_pending key;

	key_of(&key, skb, frame, false);
	bpf_map_update_elem(&pending, &key, &first, BPF_ANY);
}

static __always_inline struct bpf_sock *socket_of(struct __sk_buff *skb, struct tagged *frame)
{
	if (frame->ipv6)
		return bpf_skc_lookup_tcp(skb, &frame->tuple, sizeof(frame->tuple.ipv6),
					  BPF_F_CURRENT_NETNS, 0);
	return bpf_skc_lookup_tcp(skb, &frame->tuple, sizeof(frame->tuple.ipv4),
				  BPF_F_CURRENT_NETNS, 0);
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
	sk = socket_of(skb, frame);
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

/* A SYN with the client's bit reaches a listener: remember the bit and clear it, because the kernel
 * could take the bit for a request for accurate ECN. */
static __always_inline void hear_offer(struct __sk_buff *skb, struct tagged *frame)
{
	struct caqm_asked by_client = { .at_ns = bpf_ktime_get_ns() };
	struct caqm_pending key;
	struct bpf_sock *sk;
	bool listens;

	if ((frame->length_and_reserved & TCP_RESERVED) != BIT_OF_CLIENT ||
	    (frame->flags & (TCP_ECE | TCP_CWR)) == (TCP_ECE | TCP_CWR))
		return;
	sk = socket_of(skb, frame);
	if (!sk)
		return;
	listens = sk->state == TCP_LISTEN;
	bpf_sk_release(sk);
	if (!listens)
		return;
	key_of(&key, skb, frame, false);
	bpf_map_update_elem(&asked, &key, &by_client, BPF_ANY);
	write_reserved(skb, frame, 0);
}

/* A SYN-ACK with only the server's bit accepts a socket's offer: a server that also sets other
 * reserved bits means something else. */
static __always_inline void hear_consent(struct __sk_buff *skb, struct tagged *frame)
{
	struct tcp_sock___numbers *tp;
	struct caqm_offer *offer;
	struct bpf_sock *sk;

	if ((frame->length_and_reserved & TCP_RESERVED) != BIT_OF_SERVER)
		return;
	sk = socket_of(skb, frame);
	if (!sk)
		return;
	tp = sk->state == TCP_SYN_SENT ? (void *)bpf_skc_to_tcp_sock(sk) : NULL;
	offer = tp ? bpf_sk_storage_get(&offered, sk, NULL, 0) : NULL;
	/* Accept acknowledgements up to write_seq, not to SND.NXT: on a path within the machine
	 * the kernel sets SND.NXT only after the answer has arrived. */
	if (offer && offer->sent &&
	    caqm_is_between(frame->acknowledgement, tp->snd_una + 1, tp->write_seq))
		offer->answered = 1;
	bpf_sk_release(sk);
}

static __noinline int hear_bits(struct __sk_buff *skb)
{
	const struct caqm_settings *settings = network_settings();
	struct tagged frame = {};

	if (!settings || !read_tagged(skb, settings->tpid, &frame))
		return 0;
	if ((frame.flags & (TCP_SYN | TCP_RST | TCP_ACK)) == TCP_SYN)
		hear_offer(skb, &frame);
	else if ((frame.flags & (TCP_SYN | TCP_RST)) == TCP_SYN)
		hear_consent(skb, &frame);
	return 0;
}

/* Whether a packet without a VLAN is a SYN or a SYN-ACK. Other packets need no further
 * inspection. */
static __always_inline bool is_syn(struct __sk_buff *skb)
{
	u8 head[20], flags = 0;
	u32 transport;

	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4)) {
		if (bpf_skb_load_bytes(skb, MAC_HEADER, head, sizeof(head)) ||
		    head[9] != PROTOCOL_TCP)
			return false;
		transport = MAC_HEADER + (head[0] & 15) * 4;
	} else if (skb->protocol == bpf_htons(ETHERTYPE_IPV6)) {
		if (bpf_skb_load_bytes(skb, MAC_HEADER, head, 8) || head[6] != PROTOCOL_TCP)
			return false;
		transport = MAC_HEADER + 40;
	} else {
		return false;
	}
	bpf_skb_load_bytes(skb, transport + 13, &flags, sizeof(flags));
	return flags & TCP_SYN;
}

SEC("tcx/ingress")
int untag(struct __sk_buff *skb)
{
	const struct caqm_settings *settings;
	struct tagged frame = {};
	struct vlans vlans = {};
	struct caqm_totals *count;

	settings = network_settings();
	if (!settings)
		return TCX_NEXT;
	/* Linux has moved the outermost tag into the packet's metadata by now. */
	if (!skb->vlan_present) {
		if (settings->negotiation & NEGOTIATE_BITS && is_syn(skb))
			hear_bits(skb);
		return TCX_NEXT;
	}
	count = totals_here();
	if (!count)
		return TCX_NEXT;
	if (!read_tagged(skb, settings->tpid, &frame))
		return TCX_NEXT;
	if (frame.flags & TCP_SYN && settings->negotiation & NEGOTIATE_BITS) {
		hear_bits(skb);
		return TCX_NEXT;
	}
	if (!frame.found)
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
