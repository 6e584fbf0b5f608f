/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Checks whether a tagged segment can belong to a connection. The programs read a tag before TCP
 * processes its segment, and TCP's checksum does not cover the tag: any host that has guessed
 * addresses and ports could send a tag. Both numbers of the segment must therefore lie within the
 * peer's possible range (RFC 9293, 3.10.7.4, and RFC 5961, section 5). All differences are modulo
 * 2^32.
 *
 * TCP drops some segments that later segments overtook. The tags of such segments count here,
 * because the receiver sends each answer only once.
 */
#ifndef WEIR_ACCEL_CAQM_WINDOW_H
#define WEIR_ACCEL_CAQM_WINDOW_H

#include "contract.h"

/* The socket's state; windows in bytes, already scaled. */
struct caqm_window {
	u32 received; /* RCV.NXT */
	u32 offered; /* the peer may send at most this many bytes from `received` on */
	u32 overtaken; /* the largest window offered so far: a segment lags behind by no more */
	u32 acked; /* SND.UNA */
	u32 written; /* the end of the data to send: SND.NXT lags behind data already sent */
	u32 granted; /* the largest window that the peer offered */
};

/* The largest possible window (RFC 7323, 2.3): two such windows do not overlap modulo 2^32. */
#define CAQM_WIDEST (1U << 30)

CC_INLINE u32 caqm_is_between(u32 number, u32 first, u32 last)
{
	return number - first <= last - first;
}

CC_INLINE u32 caqm_is_plausible(const struct caqm_window *w, u32 sequence, u32 acknowledgement)
{
	u32 offered = (u32)cc_min(w->offered, CAQM_WIDEST);
	u32 overtaken = (u32)cc_min(w->overtaken, CAQM_WIDEST);
	u32 granted = (u32)cc_min(w->granted, CAQM_WIDEST);

	/* A repeated window probe carries the byte before the first new byte (RFC 9293, 3.8.4). */
	return caqm_is_between(sequence, w->received - overtaken - 1, w->received + offered) &&
	       caqm_is_between(acknowledgement, w->acked - granted, w->written);
}

/* Whether the segment may be the handshake's last segment, or data in place of the last segment:
 * the segment can acknowledge only the SYN-ACK. */
CC_INLINE u32 caqm_may_begin(const struct caqm_window *w, u32 sequence, u32 acknowledgement)
{
	u32 offered = (u32)cc_min(w->offered, CAQM_WIDEST);

	return acknowledgement == w->acked &&
	       caqm_is_between(sequence, w->received, w->received + offered);
}

#endif
