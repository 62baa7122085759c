/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether loss-based flows keep the queue full in spite of early responses.
 *
 * Compiled for BPF and, by the tests, for the host. It follows
 * crates/mechanisms/src/congestion/pert/competition.rs, which has the reasons.
 */
#ifndef PERT_COMPETITION_H
#define PERT_COMPETITION_H

#include "pert_math.h"

#define PERT_FUTILE 8
#define PERT_FUTILE_WITHOUT_LOSS 64
#define PERT_MIN_HOLD 256
#define PERT_MAX_HOLD 1024
#define PERT_HOLD_OF_TRIAL 4
#define PERT_FORCED 2

enum pert_turn { PERT_NO_TURN, PERT_TO_RENO, PERT_TO_EARLY };

/* All zeros at the start of a connection. */
struct pert_competition {
	u64 next_round;		/* us */
	u64 window;		/* packets; what responses to a full queue began to reduce */
	u32 full;		/* round trips on end with a full queue */
	u32 rounds;		/* since the last turn */
	u32 hold;		/* round trips as Reno before the next trial; 0: the least */
	u8 as_reno;
	u8 was_short;		/* the queue was not full at an ACK of this round trip */
};

static inline void pert_turn_to(struct pert_competition *c, u8 as_reno)
{
	c->as_reno = as_reno;
	c->full = 0;
	c->rounds = 0;
}

static inline u32 pert_compete(struct pert_competition *c, u64 now, u64 srtt, u64 cwnd, int full,
			       int has_lost)
{
	u32 hold = pert_max(c->hold, PERT_MIN_HOLD);
	int stayed_full, on_trial;

	c->was_short |= !full;
	if (now < c->next_round)
		return PERT_NO_TURN;
	c->next_round = now + pert_period(srtt, PACKET_ONE);
	c->rounds = pert_min((u64)c->rounds + 1, 1u << 30);
	stayed_full = !c->was_short;
	c->was_short = 0;
	if (c->as_reno) {
		if (c->rounds < (stayed_full ? PERT_FORCED * hold : hold))
			return PERT_NO_TURN;
		c->window = cwnd;
		pert_turn_to(c, 0);
		return PERT_TO_EARLY;
	}
	c->full = stayed_full ? c->full + 1 : 0;
	on_trial = c->window && c->rounds <= hold;
	if (c->full == 1 && !on_trial)
		c->window = cwnd;
	if (c->full < (has_lost ? PERT_FUTILE : PERT_FUTILE_WITHOUT_LOSS))
		return PERT_NO_TURN;
	hold = on_trial ? PERT_HOLD_OF_TRIAL * c->rounds : 0;
	c->hold = pert_min(pert_max(hold, PERT_MIN_HOLD), PERT_MAX_HOLD);
	pert_turn_to(c, 1);
	return PERT_TO_RENO;
}

#endif
