#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/context.h"
#include "cluster/rivals.h"
#include "cluster/submissions.h"
#include "metrics/ledger.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/ring.h"
#include "sim/time.h"
#include "workload/reaction.h"
#include "workload/users.h"

namespace spillway::cluster {

/// The origin of requests: the source in order of time, closed-loop users, retries, second copies,
/// and those from outside the workload. Also the time for which each client waits.
class Clients {
 public:
  /// Sets whether the request states count attempts.
  explicit Clients(Context& context);
  ~Clients();

  /// Creates the rows of the request states, and schedules the first arrivals.
  void start();
  /// A request from outside the workload will arrive at `at`, which is not past. Returns its
  /// number. Precondition: the run knows its tenant and class.
  std::size_t submit(const workload::Submission& request, sim::Time at);
  const Submissions& submissions() const { return submissions_; }
  Submissions& submissions() { return submissions_; }
  /// The request of an event of phase `source_arrival`, `user_arrival`, `retry_arrival` or
  /// `outside_arrival`.
  sim::RequestId arrive(const sim::Event& event);
  /// The request has reached the gateway: its client starts to wait.
  void submitted(sim::RequestId id) {
    if (reactions_) begin_attempt(id);
  }
  /// An event of phase `client_reaction`: the timer of a client. Unset: its request has ended.
  std::optional<sim::RequestId> timer_of(const sim::Event& event) const;
  /// Whether the client's wait for the request has ended.
  bool has_timed_out(sim::RequestId id) const { return may_withdraw_ && is_late(id); }
  /// The client of a submission will withdraw it at `at`, which is not past: after settings of that
  /// instant have changed.
  void cancel(std::size_t number, sim::Time at);
  /// A submission with `prefill_only` will be handed off then: after those that are withdrawn.
  void hand_off(const workload::HandOff& to, sim::Time at);
  /// An event of phase `settings_change` by which a submission is handed off, or withdrawn.
  static bool is_hand_off(const sim::Event& event) { return event.tie() >= kHandOffTie; }
  /// The instant has come. Returns the request, which has its lengths now, if it is in the system.
  std::optional<sim::RequestId> hand_off(std::size_t number);
  /// The client of a submission, known by its number, withdraws it, and sends no other attempt.
  /// Returns its id if it is in the system.
  std::optional<sim::RequestId> withdraw(std::size_t number);
  /// What happened to the submissions (`Submissions::take_events`).
  std::vector<SubmissionEvent> take_events(sim::Time now, bool forgets) {
    return submissions_.take_events(now, forgets);
  }
  /// An event of phase `retry_arrival`: whether the client has withdrawn its request meanwhile,
  /// which ends as its last attempt did.
  bool gives_up(const sim::Event& event);
  /// The client leaves, or has left, while a server works on its request, which notices that after
  /// `delay` (kForever: never); until then the attempt is held in vain. True: it notices now.
  [[nodiscard]] bool leave_server(sim::RequestId id, sim::Time delay);
  /// Whether the client has left and a server holds the attempt, or held it until now.
  bool has_departed(sim::RequestId id) const {
    return id.index() < departures_.size() && departures_[id.index()].has_left;
  }
  /// The run has ended: each request stands for its last attempt again.
  void settle();

  // ---- hedged requests: see README.md --------------------------------------------------------

  /// Whether any client may send second copies.
  bool hedges() const { return rivals_ != nullptr; }
  /// Whether clients may send attempts beside others for which there is no row.
  bool send_beside() const { return hedges() || may_retry_beside(context_.simulation); }
  /// The listener to the instances: `run`, and before it these clients if they hedge.
  workload::RequestListener& listener(workload::RequestListener& run);
  /// The timer of a client that still waits: the second copy of its request, which is to be
  /// submitted. Unset: it sends none now.
  std::optional<sim::RequestId> hedge(sim::RequestId id);
  /// The instance to which the request must not be sent. Precondition: clients hedge.
  std::optional<sim::InstanceId> avoided(sim::RequestId id) const;
  /// Unset if no client hedges.
  std::optional<metrics::HedgeCounts> hedge_counts() const {
    return hedges() ? std::optional(hedge_counts_) : std::nullopt;
  }
  /// Number of earlier attempts.
  std::uint64_t retries_of(sim::RequestId id) const {
    const workload::RequestStates& states = context_.states;
    return states.counts_attempts ? states.attempts[id.index()] - std::uint64_t{1} : 0;
  }
  /// The attempt has ended. True: its client retries; otherwise the request has ended, and its user
  /// may send the next one.
  bool left(sim::RequestId id);

  /// From now on another request from outside is always expected, or no longer.
  void set_open(bool is_open) { is_open_ = is_open; }
  /// Whether more arrivals are scheduled or expected.
  bool has_pending() const {
    return is_open_ || context_.requests.next_arrival() != sim::kForever || num_expected_ > 0;
  }
  /// Last arrival of a request, without retries.
  sim::Time last_arrival() const { return last_arrival_; }
  std::size_t num_users() const { return users_ ? users_->size() : 0; }
  /// Maximum number of attempts at a request over all clients.
  std::int64_t max_attempts() const;
  /// Names for error messages.
  std::string name_of_user(std::uint32_t user) const;
  std::string name_of_client(sim::RequestId id) const;

 private:
  static constexpr std::uint32_t kHandOffTie = std::uint32_t{1} << 31;

  void depart(sim::RequestId id, sim::Time delay);
  // Passes on what it is notified of; the first token of a copy ends the wait for the other.
  class FirstTokens;

  void make_reactions();
  // Places for a trace's requests in flight (`Trace::max_in_flight`).
  struct Places {
    sim::Ring<sim::Time> free;   // when each free place can be taken, ascending
    std::int64_t open_loop = 0;  // requests that still wait for their recorded times
    sim::Time turnaround{0};
  };

  void make_places();
  void schedule_source();
  sim::RequestId retry(sim::RequestId id);
  sim::RequestId retry_beside(sim::RequestId held);
  // A copy has its first token.
  void answered(sim::RequestId id);
  // The copy does not stand for the request any more; the other one, which is returned, does.
  std::optional<sim::RequestId> give_up(sim::RequestId id);
  // An attempt has ended that does not stand for its request.
  void forget(sim::RequestId id);
  void count_copies(sim::RequestId id);
  // The request will not be tried again: its user may send the next one.
  void free_user(sim::RequestId id);
  bool is_held(sim::RequestId id) const {
    return context_.states.outcome[id.index()] == workload::Outcome::running;
  }
  sim::RequestId take(const sim::Event& event);
  void begin_attempt(sim::RequestId id);
  bool is_late(sim::RequestId id) const;
  void expect(sim::Time at, sim::Phase phase, std::uint32_t subject, std::uint32_t tie = 0);
  // Of all attempts together.
  sim::Time deadline_of(sim::RequestId id) const;
  // When the second copy is due; kForever: its client does not hedge.
  sim::Time hedge_of(sim::RequestId id) const;
  // Of the current attempt.
  sim::Time wait_begins(sim::RequestId id) const;
  sim::Time timeout_of(sim::RequestId id) const;
  sim::Time first_token_timeout_of(sim::RequestId id) const;
  bool retries(sim::RequestId id);
  // The client's attempt has ended; it may retry next.
  void end_attempt(sim::RequestId id);
  bool retries_after(sim::RequestId id, workload::Cause cause);

  // Of an attempt whose client left while a server worked on it, or waits for the other copy.
  struct Departure {
    bool has_left = false;
    bool is_at_server = false;
    bool retries = false;        // the next attempt is to come
    bool is_superseded = false;  // another attempt stands for the request
    sim::Time noticed = sim::kForever;
  };

  Context& context_;
  Submissions submissions_;
  std::vector<Departure>
      departures_;                  // by request; empty unless servers notice late, or copies end
  std::unique_ptr<Rivals> rivals_;  // null unless clients hedge
  std::unique_ptr<FirstTokens> first_tokens_;  // null unless clients hedge
  metrics::HedgeCounts hedge_counts_;
  std::unique_ptr<workload::Users> users_;             // null without closed loops
  std::optional<Places> places_;                       // unset: unlimited
  std::unique_ptr<workload::Reactions> reactions_;     // null: all clients are passive
  std::vector<std::optional<std::uint32_t>> user_of_;  // by request; only if there are users
  std::int64_t num_expected_ = 0;                      // scheduled arrivals, but of the source
  bool is_open_ = false;
  bool may_withdraw_ = false;  // some client may have ended its wait
  sim::Time last_arrival_{0};
};

}  // namespace spillway::cluster
