#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "cluster/request_record.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/request_table.h"
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
  std::int32_t output_tokens = 0;  ///< delivered; known once it has ended
  double arrival_s;                ///< these are NaN where it has not come that far
  double ttft_s;
  double tpot_s;
  double e2e_s;
  double queue_s;
};

/// The requests from outside the workload, by number. Each is known to its end and beyond, even
/// where ids are reused.
class Submissions {
 public:
  explicit Submissions(const RequestRecord& record) : record_(record) {}

  /// Whether the run knows the tenant and the class.
  bool are_known(const workload::Submission& request) const;
  /// Returns its number. Precondition: `are_known`.
  std::size_t add(const workload::Submission& request);
  std::size_t size() const { return all_.size(); }

  // Of the request with this number:
  const workload::Submission& request(std::size_t number) const { return all_[number].request; }
  std::size_t tenant(std::size_t number) const { return all_[number].tenant; }
  std::size_t slo_class(std::size_t number) const { return all_[number].slo_class; }
  SubmissionStatus status(std::size_t number, sim::Time now) const;

  /// A request has arrived. `number`: that of a submission, or none.
  void arrived(sim::RequestId id, std::optional<std::size_t> number) {
    if (!all_.empty()) note_arrival(id, number);
  }
  /// Whether a request that has arrived and not ended is a submission.
  bool include(sim::RequestId id) const { return !all_.empty() && number_of(id).has_value(); }
  // Ignored for other requests:
  void awaits_retry(sim::RequestId id, bool awaits);
  void ended(sim::RequestId id) {
    if (!number_of_.empty()) keep_final(id);
  }

 private:
  struct Submitted {
    workload::Submission request;
    std::size_t tenant = 0;
    std::size_t slo_class = 0;
    std::optional<workload::RequestHandle> handle;  // set once it has arrived
    bool awaits_retry = false;
    std::optional<SubmissionStatus> final;
  };

  void note_arrival(sim::RequestId id, std::optional<std::size_t> number);
  void keep_final(sim::RequestId id);
  std::optional<std::size_t> number_of(sim::RequestId id) const;

  const RequestRecord& record_;
  std::vector<Submitted> all_;
  std::vector<std::optional<std::size_t>> number_of_;  // by request; only if there are any
};

}  // namespace spillway::cluster
