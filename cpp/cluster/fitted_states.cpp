#include "cluster/fitted_states.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "sim/phase.h"

namespace spillway::cluster {

namespace {

constexpr std::size_t kMostSamples = 2049;  // odd, so that the last one remains of every two
constexpr double kTolerance = 1e-9;

// Whether the state is left of every edge of the polygon, or on it.
bool is_inside(std::span<const instance::BatchState> corners, double running, double tokens) {
  for (std::size_t i = 0; i < corners.size(); ++i) {
    const instance::BatchState& a = corners[i];
    const instance::BatchState& b = corners[(i + 1) % corners.size()];
    const double left = (b.running_requests - a.running_requests) * (tokens - a.kv_tokens);
    const double right = (b.kv_tokens - a.kv_tokens) * (running - a.running_requests);
    if (left - right < -kTolerance * (std::abs(left) + std::abs(right))) return false;
  }
  return true;
}

}  // namespace

FittedStates::FittedStates(Context& context) : context_(context) {
  std::size_t first = 0;
  std::size_t position = 0;
  for (const instance::InstanceGroup& group : context.simulation.instances) {
    if (!group.fitted_states.empty() && std::holds_alternative<instance::StepLoop>(group.plant)) {
      watched_.push_back({.group = &group, .position = position, .first = first});
    }
    first += static_cast<std::size_t>(group.count);
    ++position;
  }
}

void FittedStates::start() {
  if (watched_.empty()) return;
  context_.events.push({context_.now, sim::Phase::timeline_sample, kKey, 0});
}

void FittedStates::sample(std::span<const std::unique_ptr<instance::Instance>> instances,
                          bool continues) {
  for (Watched& watched : watched_) {
    const instance::InstanceGroup& group = *watched.group;
    const auto ranks = static_cast<double>(group.data_parallel_size);
    const auto tokens = static_cast<double>(group.num_kv_blocks * group.block_size_tokens);
    Counts counts;
    for (const auto& instance :
         instances.subspan(watched.first, static_cast<std::size_t>(group.count))) {
      if (instance->occupancy().running == 0) continue;
      const signals::InstanceSignal seen = instance->read(context_.now);
      const double running = seen.running / ranks;
      const double used = seen.kv_utilization * tokens;
      watched.most_running_requests = std::max(watched.most_running_requests, running);
      watched.most_kv_tokens = std::max(watched.most_kv_tokens, used);
      ++counts.states;
      if (!is_inside(group.fitted_states, running, used)) ++counts.outside;
    }
    counts_.push_back(counts);
  }
  if (counts_.size() == kMostSamples * watched_.size()) thin_out();
  if (!continues) return;
  context_.events.push({context_.now + step_, sim::Phase::timeline_sample, kKey, 0});
}

// Keeps the samples that the doubled interval would have taken.
void FittedStates::thin_out() {
  const std::size_t width = watched_.size();
  const std::size_t kept = (kMostSamples + 1) / 2;
  for (std::size_t i = 0; i < kept * width; ++i) {
    counts_[i] = counts_[2 * width * (i / width) + i % width];
  }
  counts_.resize(kept * width);
  step_ = step_ + step_;
}

std::vector<FittedStatesReport> FittedStates::report() const {
  std::vector<FittedStatesReport> found;
  for (std::size_t k = 0; k < watched_.size(); ++k) {
    const Watched& watched = watched_[k];
    FittedStatesReport entry{.group = static_cast<std::int64_t>(watched.position),
                             .most_running_requests = watched.most_running_requests,
                             .most_kv_tokens = watched.most_kv_tokens};
    for (std::size_t i = k; i < counts_.size(); i += watched_.size()) {
      entry.states += counts_[i].states;
      entry.outside += counts_[i].outside;
    }
    found.push_back(entry);
  }
  return found;
}

}  // namespace spillway::cluster
