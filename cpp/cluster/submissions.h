#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "cluster/request_record.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/request_table.h"
#include "workload/requests.h"
#include "workload/submission.h"

namespace spillway::cluster {

/// A request from outside the workload, as far as it has come.
struct SubmissionStatus {
  /// submitted: it has not arrived yet; awaiting_retry: its client sends another attempt later;
  /// otherwise the name of an outcome.
  std::string_view state = "submitted";
  bool has_ended = false;
  workload::ReasonCode reason;
  std::optional<std::uint32_t> row;  ///< position in the order of arrival; unset: not arrived
  std::uint16_t attempts = 0;
  std::int32_t instance = -1;
  std::int32_t output_tokens = 0;  ///< delivered; up to date once it has ended, or after `progress`
  std::int32_t cached_tokens = 0;  ///< of its prompt
  std::int32_t preemptions = 0;
  // kUnset: it has not come that far.
  sim::Time dispatched = sim::kUnset;
  sim::Time scheduled = sim::kUnset;
  sim::Time first_token = sim::kUnset;
  sim::Time ended = sim::kUnset;
  double arrival_s;  ///< these are NaN where it has not come that far
  double ttft_s;
  double tpot_s;
  double e2e_s;
  double queue_s;
};

/// What has happened to a request from outside the workload.
struct SubmissionEvent {
  /// prompt_computed: of a request with `prefill_only`.
  enum class Kind : std::uint8_t { dispatched, prompt_computed, first_token, ended };
  Kind kind;
  std::size_t number;
  sim::Time at;
  SubmissionStatus status;  ///< when the event was taken
};

/// The requests from outside the workload, by number. Each is known to its end and beyond, even
/// where ids are reused, unless those that have ended are forgotten.
class Submissions {
 public:
  explicit Submissions(const RequestRecord& record) : record_(record) {}

  /// Whether the run knows the tenant, the class and the model.
  bool are_known(const workload::Submission& request) const;
  /// The request will arrive at `at`. Returns its number. Precondition: `are_known`.
  std::size_t add(const workload::Submission& request, sim::Time at);
  std::size_t size() const { return size_; }
  /// Whether the number is that of a request which is not forgotten.
  bool know(std::size_t number) const { return number >= num_forgotten_ && number < size(); }

  // Of the request with this number, which is known:
  const workload::Submission& request(std::size_t number) const { return at(number).request; }
  const std::vector<workload::Segment>& segments(std::size_t number) const {
    return at(number).segments;
  }
  std::size_t tenant(std::size_t number) const { return at(number).tenant; }
  std::size_t slo_class(std::size_t number) const { return at(number).slo_class; }
  sim::Time arrival(std::size_t number) const { return at(number).arrival; }
  SubmissionStatus status(std::size_t number, sim::Time now) const;
  /// Id of the request while it is in the system.
  std::optional<sim::RequestId> find(std::size_t number) const;
  /// The client withdraws the request and makes no further attempt.
  void withdraw(std::size_t number) { at(number).is_withdrawn = has_withdrawn_ = true; }
  /// States where the request goes on. Precondition: it has `prefill_only`.
  void plan(const workload::HandOff& to) { at(static_cast<std::size_t>(to.request)).planned = to; }
  /// Whether that is stated.
  bool is_planned(std::size_t number) const { return at(number).planned.has_value(); }
  bool is_planned(sim::RequestId id) const;
  /// The instant of its plan has come. Returns the request if it is in the system.
  std::optional<sim::RequestId> hand_off(std::size_t number);

  /// What has happened to them since the last call, in order of time, then of number. Of an attempt
  /// that another one followed, only what an earlier call has returned. `forgets`: those whose end
  /// is among the events are forgotten.
  std::vector<SubmissionEvent> take_events(sim::Time now, bool forgets);

  /// A request has arrived. `number`: that of a submission, or none.
  void arrived(sim::RequestId id, std::optional<std::size_t> number) {
    if (size() > 0) note_arrival(id, number);
  }
  /// Whether a request that has arrived and not ended is a submission.
  bool include(sim::RequestId id) const { return number_of(id).has_value(); }
  /// The instance that the request states, if it is a submission that states one.
  std::optional<std::int64_t> instance_of(sim::RequestId id) const;
  /// Whether it is a submission of which only the prompt is computed at its instance.
  bool is_prefill_only(sim::RequestId id) const;
  /// Where such a request goes on; unset: that has not been said yet.
  const workload::HandOff* handed_off(sim::RequestId id) const;
  /// The prompt of such a request has been computed.
  void prompt_computed(sim::RequestId id, sim::Time now);
  /// Whether it is a submission that was withdrawn.
  bool is_withdrawn(sim::RequestId id) const { return has_withdrawn_ && was_withdrawn(id); }
  // Ignored for other requests:
  void awaits_retry(sim::RequestId id, bool awaits);
  /// The next attempt of the request `held` is another id.
  void continues_as(sim::RequestId held, sim::RequestId id);
  void ended(sim::RequestId id, sim::Time now) {
    if (!number_of_.empty()) keep_final(id, now);
  }

 private:
  struct Submitted {
    workload::Submission request;
    std::vector<workload::Segment> segments;
    std::size_t tenant = 0;
    std::size_t slo_class = 0;
    sim::Time arrival{0};
    std::optional<workload::RequestHandle> handle;  // set once it has arrived
    std::optional<workload::HandOff> planned;
    bool is_handed_off = false;
    bool awaits_retry = false;
    bool is_withdrawn = false;
    bool is_reported = false;                   // its end
    sim::Time reported_dispatch = sim::kUnset;  // of the events taken so far
    sim::Time reported_prompt = sim::kUnset;
    sim::Time reported_token = sim::kUnset;
    sim::Time prompt_computed = sim::kUnset;
    std::optional<SubmissionStatus> final;
  };

  const Submitted& at(std::size_t number) const { return all_[number - num_forgotten_]; }
  Submitted& at(std::size_t number) { return all_[number - num_forgotten_]; }
  bool was_withdrawn(sim::RequestId id) const;
  void note_arrival(sim::RequestId id, std::optional<std::size_t> number);
  void keep_final(sim::RequestId id, sim::Time now);
  std::optional<std::size_t> number_of(sim::RequestId id) const;

  const RequestRecord& record_;
  std::size_t size_ = 0;
  bool has_withdrawn_ = false;
  std::deque<Submitted> all_;
  std::size_t num_forgotten_ = 0;                      // the first ones
  std::vector<std::size_t> pending_;                   // those whose end is not reported
  std::vector<std::optional<std::size_t>> number_of_;  // by request; only if there are any
};

}  // namespace spillway::cluster
