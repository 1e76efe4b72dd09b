#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gateway/admission/per_request.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::gateway {

/// The least-squares line y = a + b·x, a and b ≥ 0, in which the weight of a sample halves every
/// `half_life_samples` samples.
class DecayedLine {
 public:
  explicit DecayedLine(double half_life_samples);
  void add(double x, double y);
  /// Unset before the first sample.
  std::optional<double> at(double x) const;

 private:
  double keep_;
  double n_ = 0;
  double x_ = 0;
  double y_ = 0;
  double xx_ = 0;
  double xy_ = 0;
};

/// Latency models that a gateway learns from its own requests: time from dispatch to the first
/// token as a line over the prompt tokens to compute, time per token as a line over the streams of
/// an instance. It knows the instances' metrics and, from the first token on, a request's instance.
/// Prompts count in full, cached or not: the line learns the average computed share. Time in the
/// gateway's own queues is not included.
class ObservedLatency {
 public:
  ObservedLatency(std::size_t num_instances, double half_life_samples);

  /// Prepares a decision on `request`; its `commit` may follow.
  void look(const signals::RequestView& request, const signals::View& view);
  void commit(const signals::RequestView& request);
  void dispatched(const signals::RequestView& request, sim::Time now);
  void first_token(const signals::RequestView& request, sim::InstanceId instance, sim::Time now);
  void finished(const signals::RequestView& request, bool completed, sim::Time now);

  /// Admitted requests that have not left the system.
  std::int64_t inside() const { return inside_; }
  /// Requests of `inside` that await their first tokens.
  std::int64_t before_first_token() const {
    return inside_ - static_cast<std::int64_t>(streams_.size());
  }
  /// Start times of the running streams, in order.
  const std::vector<sim::Time>& streams() const { return streams_; }
  std::int64_t streams(sim::InstanceId instance) const { return at_[instance.index()].streams; }

  /// Time from dispatch to the first token, where the prompt and those ahead of it have `tokens`
  /// tokens.
  std::optional<double> ttft_s(double tokens) const { return ttft_.at(tokens); }
  /// Time per token of a stream, where the instance has `streams` streams.
  std::optional<double> tpot_s(double streams) const { return tpot_.at(streams); }
  /// Mean time from the first token to the last.
  std::optional<double> decode_s() const { return decode_.at(0); }

 private:
  struct Memory {
    double tokens = 0;  // of the prompts ahead of it and its own
    sim::Time dispatched = sim::kUnset;
    sim::Time first_token = sim::kUnset;
    sim::InstanceId instance;
    double stream_time = 0;  // of the instance, at the first token
  };
  struct AtInstance {
    std::int64_t streams = 0;
    double stream_time = 0;  // ∫ streams dt up to `updated`, in stream-seconds
    sim::Time updated{0};
  };
  AtInstance& brought_up(sim::InstanceId instance, sim::Time now);

  DecayedLine ttft_;
  DecayedLine tpot_;
  DecayedLine decode_;
  double tokens_ = 0;  // of the request under decision
  std::int64_t inside_ = 0;
  std::vector<sim::Time> streams_;
  std::vector<AtInstance> at_;
  PerRequest<Memory> memory_;
};

}  // namespace spillway::gateway
