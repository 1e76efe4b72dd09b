#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "gateway/fairness/policy_classes.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::gateway {

/// The waiting requests of several classes, which take turns by deficit round robin on the prompt
/// tokens that no instance holds.
class PolicyQueue {
 public:
  explicit PolicyQueue(std::vector<PolicyClass> classes);

  /// What the place of a request depends on.
  struct Joining {
    sim::RequestId request;
    std::int64_t input_tokens = 0;
    std::int64_t cached_tokens = 0;
    std::int64_t strict_priority = 0;
    double priority_jump_s = 0;
    sim::Time now{0};
  };

  std::size_t size() const { return size_; }
  std::size_t size(std::size_t of_class) const { return classes_[of_class].waiting.size(); }
  /// Whether the bounds of the class let one more request wait before `workers` workers.
  bool has_room(std::size_t of_class, std::int64_t workers) const;
  void push(std::size_t to_class, const Joining& request);
  /// Takes the next request whose class `may_start`; unset: none.
  template <class MayStart>
  std::optional<sim::RequestId> pop(const MayStart& may_start);
  /// Removes a waiting request.
  void remove(std::size_t from_class, sim::RequestId request);

 private:
  struct Entry {
    sim::RequestId request;
    std::int64_t input_tokens = 0;
    std::int64_t cost = 1;  // uncached prompt tokens, at least 1
    std::int64_t strict_priority = 0;
    double score = 0;
    std::uint64_t serial = 0;

    // Whether it is dispatched first.
    bool operator<(const Entry& other) const {
      if (strict_priority != other.strict_priority) return strict_priority > other.strict_priority;
      return score != other.score ? score > other.score : serial < other.serial;
    }
  };
  struct Class {
    PolicyClass config;
    std::set<Entry> waiting;
    std::int64_t input_tokens = 0;  // of all that wait
    std::int64_t deficit = 0;

    bool can_pay() const { return waiting.begin()->cost <= deficit; }
  };
  std::size_t after(std::size_t i) const { return i + 1 == classes_.size() ? 0 : i + 1; }
  sim::RequestId take(std::size_t i);
  // Gives the classes the quanta of all rounds until one of them can pay for its head.
  void top_up(std::span<const std::size_t> candidates);

  std::vector<Class> classes_;
  std::size_t size_ = 0;
  std::size_t turn_ = 0;
  std::optional<std::size_t> carried_;  // the class that was served and still has a deficit
  std::uint64_t next_serial_ = 0;
};

template <class MayStart>
std::optional<sim::RequestId> PolicyQueue::pop(const MayStart& may_start) {
  const std::optional<std::size_t> carried = carried_;
  carried_.reset();
  if (size_ == 0) return std::nullopt;
  const auto is_candidate = [&](std::size_t i) {
    const Class& its = classes_[i];
    return !its.waiting.empty() && may_start(i, its.waiting.begin()->request);
  };
  if (carried && is_candidate(*carried) && classes_[*carried].can_pay()) return take(*carried);
  std::vector<std::size_t> candidates;
  for (std::size_t k = 0, i = turn_; k < classes_.size(); ++k, i = after(i)) {
    Class& its = classes_[i];
    if (its.waiting.empty()) its.deficit = 0;
    if (!is_candidate(i)) continue;
    candidates.push_back(i);
    if (!its.can_pay()) its.deficit += its.config.quantum_tokens;
    if (its.can_pay()) return take(i);
  }
  if (candidates.empty()) return std::nullopt;
  top_up(candidates);
  return take(*std::ranges::find_if(candidates, [&](auto i) { return classes_[i].can_pay(); }));
}

}  // namespace spillway::gateway
