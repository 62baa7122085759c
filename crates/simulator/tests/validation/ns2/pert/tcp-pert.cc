// PERT for ns-2 2.35 as an agent on Sack1, live playout, and links that say who comes first.
//
// Written from docs/mechanisms/pert.md (variant "reference") alone. README.md says how to build
// it, and what is decided here where those rules are silent (marked D below).
#include "tcp-sack1.cc" // declares Sack1TcpAgent, which no header does
#include "app.h"
#include "delay.h"
#include <algorithm>
#include <vector>

// Packets between events, averaged as in RFC 5348, section 5.4.
class Intervals {
public:
	Intervals() : open_(0) {}
	bool seen() const { return !closed_.empty(); }
	void count(double packets) { open_ += packets; }
	void close() {
		closed_.insert(closed_.begin(), open_);
		closed_.resize(std::min<size_t>(closed_.size(), 8));
		open_ = 0;
	}
	// Events per packet, once there was an event. The open interval counts where it makes the
	// mean longer; of fewer than eight intervals, the weights of those there are (D).
	double rate() const {
		double closed = 0, closed_weight = 0, open = open_, open_weight = 1;
		for (size_t i = 0; i < closed_.size(); ++i) {
			closed += weight(i) * closed_[i];
			closed_weight += weight(i);
			if (i + 1 < 8) {
				open += weight(i + 1) * closed_[i];
				open_weight += weight(i + 1);
			}
		}
		const double mean = std::max(closed / closed_weight, open / open_weight);
		return mean > 0 ? 1 / mean : 1;
	}
private:
	static double weight(size_t i) { return i < 4 ? 1 : 1 - 0.2 * (i - 3); }
	double open_;                // packets since the last event
	std::vector<double> closed_; // the most recent first
};

class PertTcpAgent : public Sack1TcpAgent {
public:
	PertTcpAgent()
		: srtt_(-1), min_(0), max_(0), alpha_(32), next_step_(0), mode_(SAFE), in_mode_(0),
		  responded_(-1), early_(0) {}
	virtual void recv(Packet* pkt, Handler* h);
	virtual void timeout(int tno);
	virtual int command(int argc, const char* const* argv);
protected:
	virtual void dupack_action();
	virtual void opencwnd();
private:
	enum Mode { SAFE, HIGH_SPEED, COMPETE };
	double curq() const { return srtt_ - min_; }
	double maxq() const { return std::max(max_ - min_, 0.010); }
	double cut(double window) const {
		return srtt_ < 0 ? window / 2 : std::max(window * (1 - curq() / (curq() + maxq())), 2.0);
	}
	void measure(double rtt);
	void step_alpha();
	bool responds_early();

	double srtt_, min_, max_; // of the round trip, in seconds; srtt_ < 0 before the first
	double alpha_, next_step_;
	Mode mode_;
	int in_mode_;   // ACKs on end in this mode
	int responded_; // highest packet sent at the last early response
	int early_;     // early responses
	Intervals losses_, responses_;
};

static class PertTcpClass : public TclClass {
public:
	PertTcpClass() : TclClass("Agent/TCP/Sack1/Pert") {}
	TclObject* create(int, const char* const*) { return new PertTcpAgent(); }
} class_pert;

void PertTcpAgent::measure(double rtt)
{
	if (srtt_ < 0) {
		srtt_ = min_ = max_ = rtt;
		return;
	}
	srtt_ = 0.99 * srtt_ + 0.01 * rtt;
	min_ = std::min(min_, rtt);
	max_ = std::max(max_, rtt);
}

void PertTcpAgent::recv(Packet* pkt, Handler* h)
{
	hdr_tcp* tcp = hdr_tcp::access(pkt);
	const int advance = tcp->seqno() - highest_ack_;
	if (advance > 0) {
		// The receiver echoes the time of the packet that it answers, where that fills a gap (D).
		measure(Scheduler::instance().clock() - tcp->ts_echo());
		losses_.count(advance);
		responses_.count(advance);
	}
	const Mode mode = curq() <= 0.005 ? HIGH_SPEED : curq() >= 0.5 * maxq() ? COMPETE : SAFE;
	in_mode_ = mode == mode_ ? in_mode_ + 1 : 1;
	mode_ = mode;
	Sack1TcpAgent::recv(pkt, h);
}

// Called by Sack1 for each ACK that advances outside of recovery.
void PertTcpAgent::opencwnd()
{
	if (cwnd_ < ssthresh_) {
		cwnd_ += 1;
		return;
	}
	step_alpha();
	if (!responds_early())
		cwnd_ += alpha_ / double(cwnd_);
}

void PertTcpAgent::step_alpha()
{
	const double now = Scheduler::instance().clock();
	if (now < next_step_)
		return;
	next_step_ = now + 5 * srtt_;
	// A mode other than safe needs a whole window of ACKs.
	const Mode mode = in_mode_ < cwnd_ ? SAFE : mode_;
	if (mode == HIGH_SPEED)
		alpha_ = std::min(alpha_ + 0.5, 32.0);
	else if (mode == SAFE)
		alpha_ = std::max(0.9 * alpha_, 1.0);
	else {
		double target = 32;
		if (losses_.seen()) {
			const double ratio = responses_.seen() ? responses_.rate() / losses_.rate() : 0;
			const double ramp = std::min((curq() / maxq() - 0.5) / 0.15, 1.0); // linear (D)
			target = std::min(1 + ratio * ramp, 32.0);
		}
		alpha_ = std::max(1.0, std::min(alpha_ + 0.1, target));
	}
}

bool PertTcpAgent::responds_early()
{
	if (highest_ack_ <= responded_)
		return false;
	const double q = curq(), t3 = std::max(0.020, 0.65 * maxq());
	double p = 1;
	if (q < 0.005)
		p = 0;
	else if (q < 0.010)
		p = 0.05 * (q - 0.005) / 0.005;
	else if (q < t3)
		p = 0.05 + 0.95 * (q - 0.010) / (t3 - 0.010);
	if (Random::uniform() >= p)
		return false;
	responded_ = maxseq_;
	++early_;
	responses_.close();
	cwnd_ = cut(cwnd_);
	ssthresh_ = int(cwnd_);
	return true;
}

void PertTcpAgent::dupack_action()
{
	const bool before = fastrecov_;
	const double window = windowd();
	Sack1TcpAgent::dupack_action();
	if (before || !fastrecov_)
		return;
	cwnd_ = cut(window);
	ssthresh_ = int(cwnd_);
	losses_.close();
}

void PertTcpAgent::timeout(int tno)
{
	const double window = windowd();
	const int before = nrexmit_;
	Sack1TcpAgent::timeout(tno);
	if (nrexmit_ == before)
		return; // another timer, or nothing was outstanding
	ssthresh_ = std::max(2, int(cut(window)));
	losses_.close();
}

int PertTcpAgent::command(int argc, const char* const* argv)
{
	if (argc == 2 && strcmp(argv[1], "pert") == 0) {
		Tcl::instance().resultf("%d %g %g %g", early_, alpha_, curq(), maxq());
		return TCL_OK;
	}
	return Sack1TcpAgent::command(argc, argv);
}

// Counts the packets of a constant bit rate that come in order later than they were due, for
// start-up delays of 3, 5 and 11 s: `live FIRST INTERVAL`, attach to the sink, `report`.
class PlayoutApp : public Application {
public:
	PlayoutApp() : first_(0), interval_(1), bytes_(0), packets_(0) { std::fill(late_, late_ + 3, 0); }
	virtual void recv(int nbytes) {
		bytes_ += nbytes;
		for (; bytes_ >= 40 + 1000.0 * (packets_ + 1); ++packets_) // the SYN has 40 bytes
			for (int i = 0; i < 3; ++i)
				late_[i] += now() > deadline(packets_, i);
	}
	virtual int command(int argc, const char* const* argv) {
		if (argc == 4 && strcmp(argv[1], "live") == 0) {
			first_ = atof(argv[2]);
			interval_ = atof(argv[3]);
			return TCL_OK;
		}
		if (argc == 2 && strcmp(argv[1], "report") == 0) {
			double share[3];
			for (int i = 0; i < 3; ++i) {
				// What has not come is late once its time has passed.
				int late = late_[i], units = packets_;
				for (int k = packets_; deadline(k, i) < now(); ++k, ++late)
					++units;
				share[i] = units ? double(late) / units : 0;
			}
			Tcl::instance().resultf("%d %.9f %.9f %.9f", packets_, share[0], share[1], share[2]);
			return TCL_OK;
		}
		return Application::command(argc, argv);
	}
private:
	static double now() { return Scheduler::instance().clock(); }
	double deadline(int k, int i) const {
		static const double delay[3] = {3, 5, 11};
		return first_ + k * interval_ + delay[i];
	}
	double first_, interval_, bytes_;
	int packets_, late_[3];
};

static class PlayoutClass : public TclClass {
public:
	PlayoutClass() : TclClass("Application/Playout") {}
	TclObject* create(int, const char* const*) { return new PlayoutApp(); }
} class_playout;

// A link on which a packet that waited for the one before it arrives `shift_` seconds later, or
// earlier if negative. A nanosecond changes no delay, but decides whose packet comes first of
// those that would arrive at the same moment.
class OrderedDelay : public LinkDelay {
public:
	OrderedDelay() : ends_(-1) { bind("shift_", &shift_); }
	void recv(Packet* p, Handler* h) {
		const double now = Scheduler::instance().clock(), delay = delay_;
		if (now - ends_ < 1e-10)
			delay_ += shift_;
		ends_ = now + txtime(p);
		LinkDelay::recv(p, h);
		delay_ = delay;
	}
private:
	double shift_, ends_;
};

static class OrderedDelayClass : public TclClass {
public:
	OrderedDelayClass() : TclClass("DelayLink/Ordered") {}
	TclObject* create(int, const char* const*) { return new OrderedDelay(); }
} class_ordered_delay;
