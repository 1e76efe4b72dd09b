#include "gateway/fairness/policy_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace spillway::gateway {

using sim::RequestId;

PolicyQueue::PolicyQueue(std::vector<PolicyClass> classes) {
  for (PolicyClass& config : classes) classes_.push_back({.config = std::move(config)});
}

bool PolicyQueue::has_room(std::size_t of_class, std::int64_t workers) const {
  const Class& its = classes_[of_class];
  const auto is_reached = [&](std::int64_t value, const std::optional<std::int64_t>& per_worker) {
    return per_worker && value >= *per_worker * workers;
  };
  return !is_reached(std::ssize(its.waiting), its.config.max_requests_per_worker) &&
         !is_reached(its.input_tokens, its.config.max_prompt_tokens_per_worker);
}

void PolicyQueue::push(std::size_t to_class, const Joining& request) {
  Class& its = classes_[to_class];
  const std::int64_t cached = std::min(request.cached_tokens, request.input_tokens);
  const std::int64_t cost = std::max<std::int64_t>(1, request.input_tokens - cached);
  const double jump_s = std::max(0.0, request.priority_jump_s);
  const double now_s = sim::to_seconds(request.now);
  double score = 0;
  switch (its.config.order) {
    case ClassOrder::fcfs:
      score = jump_s - now_s;
      break;
    case ClassOrder::lcfs:
      score = jump_s + now_s;
      break;
    case ClassOrder::wspt:
      score = (1 + jump_s) / static_cast<double>(cost);
      break;
  }
  its.waiting.insert({request.request, request.input_tokens, cost, request.strict_priority, score,
                      next_serial_++});
  its.input_tokens += request.input_tokens;
  ++size_;
}

RequestId PolicyQueue::take(std::size_t i) {
  Class& its = classes_[i];
  const Entry head = *its.waiting.begin();
  its.waiting.erase(its.waiting.begin());
  its.input_tokens -= head.input_tokens;
  its.deficit = std::max<std::int64_t>(0, its.deficit - head.cost);
  --size_;
  turn_ = after(i);
  if (its.waiting.empty()) {
    its.deficit = 0;
  } else if (its.deficit > 0) {
    carried_ = i;
  }
  return head.request;
}

void PolicyQueue::top_up(std::span<const std::size_t> candidates) {
  std::int64_t rounds = std::numeric_limits<std::int64_t>::max();
  for (const std::size_t i : candidates) {
    const Class& its = classes_[i];
    const std::int64_t missing = its.waiting.begin()->cost - its.deficit;
    const std::int64_t quantum = its.config.quantum_tokens;
    rounds = std::min(rounds, (missing + quantum - 1) / quantum);
  }
  for (const std::size_t i : candidates) {
    classes_[i].deficit += rounds * classes_[i].config.quantum_tokens;
  }
}

void PolicyQueue::remove(std::size_t from_class, RequestId request) {
  Class& its = classes_[from_class];
  const auto at = std::ranges::find(its.waiting, request, &Entry::request);
  its.input_tokens -= at->input_tokens;
  its.waiting.erase(at);
  --size_;
}

}  // namespace spillway::gateway
