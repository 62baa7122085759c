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
#define PERT_MIN_BETWEEN 256
#define PERT_BETWEEN_OF_TRIAL 4
#define PERT_SECOND 1000000	/* us */

enum pert_turn { PERT_NO_TURN, PERT_TO_RENO, PERT_TO_EARLY };

/* All zeros at the start of a connection. */
struct pert_competition {
	u64 next_round;		/* us */
	u64 next_trial;		/* us; as Reno: when early responses are tried again */
	u64 window;		/* packets; what responses to a full queue began to reduce */
	u32 full;		/* round trips on end with a full queue */
	u32 empty;		/* round trips on end with a short queue, as Reno since a trial's time */
	u32 rounds;		/* since the last turn; as Reno, since a trial's time */
	int limited;		/* ACKs of this round trip at which the window limited, less others */
	u8 as_reno;
	u8 on_trial;		/* responds early, and not yet as long as lies between trials */
	u8 was_short;		/* the queue was not full at an ACK of this round trip */
};

/*
 * us to the first multiple, by the wall clock, of the least power of two of seconds that is at least
 * `between` us: so all flows try at once.
 */
static inline u64 pert_until_trial(u64 clock, u64 between)
{
	u64 period = PERT_SECOND;
	int i;

	for (i = 0; i < 20 && period < between; i++)
		period <<= 1;
	return period - clock % period;
}

static inline u32 pert_turn_to(struct pert_competition *c, u8 as_reno)
{
	c->as_reno = as_reno;
	c->on_trial = !as_reno;
	c->full = 0;
	c->empty = 0;
	c->rounds = 0;
	return as_reno ? PERT_TO_RENO : PERT_TO_EARLY;
}

/* `now` and the wall `clock` in us; the clock counts only where a trial is set, so that it may step. */
static inline u32 pert_compete(struct pert_competition *c, u64 now, u64 clock, u64 srtt, u64 cwnd,
			       int full, int has_lost, int limits)
{
	u64 round = pert_period(srtt, PACKET_ONE);
	int fills, stayed_full;
	u32 longer;

	c->was_short |= !full;
	c->limited += limits ? 1 : -1;
	if (now < c->next_round)
		return PERT_NO_TURN;
	c->next_round = now + round;
	stayed_full = !c->was_short;
	fills = c->limited > 0;
	c->was_short = 0;
	c->limited = 0;
	if (c->as_reno && now < c->next_trial)
		return PERT_NO_TURN;
	c->rounds = pert_min((u64)c->rounds + 1, 1u << 30);
	if (c->as_reno) {
		c->empty = stayed_full ? 0 : c->empty + 1;
		if ((fills && c->rounds == 1) || c->empty >= PERT_FUTILE) {
			c->window = cwnd;
			return pert_turn_to(c, 0);
		}
		if (!c->empty && c->rounds >= PERT_FUTILE) {
			c->next_trial = now + pert_until_trial(clock, PERT_MIN_BETWEEN * round);
			c->rounds = 0;
		}
		return PERT_NO_TURN;
	}
	c->full = stayed_full ? c->full + 1 : 0;
	c->on_trial &= c->rounds <= PERT_MIN_BETWEEN;
	if (c->full == 1 && !c->on_trial)
		c->window = cwnd;
	if (c->full < (has_lost ? PERT_FUTILE : PERT_FUTILE_WITHOUT_LOSS))
		return PERT_NO_TURN;
	longer = c->on_trial ? PERT_BETWEEN_OF_TRIAL * c->rounds : 0;
	c->next_trial = now + pert_until_trial(clock, pert_max(longer, PERT_MIN_BETWEEN) * round);
	return pert_turn_to(c, 1);
}

#endif
