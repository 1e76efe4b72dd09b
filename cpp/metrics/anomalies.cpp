#include "metrics/anomalies.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

namespace spillway::metrics {

namespace {

// Counts in a Fenwick tree over ranks.
class RankCounts {
 public:
  explicit RankCounts(std::size_t size) : tree_(size + 1, 0) {}
  void add(std::size_t rank, std::int64_t count = 1) {
    for (std::size_t i = rank + 1; i < tree_.size(); i += i & (0 - i)) tree_[i] += count;
  }
  // How many have been added with a rank below `rank`.
  std::int64_t below(std::size_t rank) const {
    std::int64_t sum = 0;
    for (std::size_t i = rank; i > 0; i -= i & (0 - i)) sum += tree_[i];
    return sum;
  }

 private:
  std::vector<std::int64_t> tree_;
};

// Of one instance, in order of entry. `priorities`: all that occur, the lowest first.
std::int64_t count_overtaken(std::span<const QueueStay> stays,
                             std::span<const std::int64_t> priorities,
                             std::vector<std::size_t>& by_end) {
  by_end.resize(stays.size());
  std::iota(by_end.begin(), by_end.end(), std::size_t{0});
  std::sort(by_end.begin(), by_end.end(),
            [&](std::size_t a, std::size_t b) { return stays[a].ended < stays[b].ended; });
  const auto rank_of = [&](const QueueStay& stay) {
    const auto at = std::lower_bound(priorities.begin(), priorities.end(), stay.priority);
    return static_cast<std::size_t>(at - priorities.begin());
  };
  RankCounts queued(priorities.size());
  std::int64_t in_queue = 0;
  std::size_t entered = 0;
  std::int64_t pairs = 0;
  for (std::size_t begin = 0; begin < by_end.size();) {
    const sim::Time now = stays[by_end[begin]].ended;
    for (; entered < stays.size() && stays[entered].entered <= now; ++entered) {
      queued.add(rank_of(stays[entered]));
      ++in_queue;
    }
    // Requests scheduled at one instant do not overtake each other.
    std::size_t end = begin;
    for (; end < by_end.size() && stays[by_end[end]].ended == now; ++end) {
      queued.add(rank_of(stays[by_end[end]]), -1);
      --in_queue;
    }
    for (; begin < end; ++begin) {
      const QueueStay& stay = stays[by_end[begin]];
      if (stay.is_scheduled) pairs += in_queue - queued.below(rank_of(stay) + 1);
    }
  }
  return pairs;
}

std::int64_t count_in_group(std::span<const Served> group) {
  std::vector<double> sorted;
  for (const Served& one : group) sorted.push_back(one.e2e_ns);
  std::sort(sorted.begin(), sorted.end());
  RankCounts earlier(sorted.size());
  std::int64_t pairs = 0;
  std::int64_t seen = 0;
  for (std::size_t begin = 0; begin < group.size();) {
    std::size_t end = begin;
    while (end < group.size() && group[end].arrival == group[begin].arrival) ++end;
    // Requests of one instant are no pair; they are added after all of them have been looked at.
    for (std::size_t i = begin; i < end; ++i) {
      const auto above = std::upper_bound(sorted.begin(), sorted.end(), 2.0 * group[i].e2e_ns);
      pairs += seen - earlier.below(static_cast<std::size_t>(above - sorted.begin()));
    }
    for (std::size_t i = begin; i < end; ++i) {
      const auto at = std::lower_bound(sorted.begin(), sorted.end(), group[i].e2e_ns);
      earlier.add(static_cast<std::size_t>(at - sorted.begin()));
      ++seen;
    }
    begin = end;
  }
  return pairs;
}

}  // namespace

std::int64_t count_priority_inversions(std::span<QueueStay> stays) {
  std::vector<std::int64_t> priorities;
  for (const QueueStay& stay : stays) {
    const auto at = std::lower_bound(priorities.begin(), priorities.end(), stay.priority);
    if (at == priorities.end() || *at != stay.priority) priorities.insert(at, stay.priority);
  }
  std::sort(stays.begin(), stays.end(), [](const QueueStay& a, const QueueStay& b) {
    return std::tie(a.instance, a.entered) < std::tie(b.instance, b.entered);
  });
  std::vector<std::size_t> by_end;
  std::int64_t pairs = 0;
  for (std::size_t begin = 0; begin < stays.size();) {
    std::size_t end = begin;
    while (end < stays.size() && stays[end].instance == stays[begin].instance) ++end;
    pairs += count_overtaken(stays.subspan(begin, end - begin), priorities, by_end);
    begin = end;
  }
  return pairs;
}

void QueueStays::left(sim::RequestId id, sim::Time now) {
  if (!is_scheduled(id)) add(id, now);
}

void QueueStays::forget(sim::RequestId id) {
  if (is_scheduled(id)) add(id, journal_.scheduled[id.index()]);
}

std::int64_t QueueStays::count_inversions(std::size_t offered) {
  const auto priority = [&](std::size_t row) {
    return requests_.class_of(sim::RequestId{row}).priority;
  };
  std::size_t differing = 1;
  while (differing < offered && priority(differing) == priority(0)) ++differing;
  if (differing >= offered) return 0;
  stays_.reserve(stays_.size() + offered);
  for (std::size_t row = 0; row < offered; ++row) {
    const sim::RequestId id{row};
    if (is_scheduled(id)) {
      add(id, journal_.scheduled[row]);
    } else if (journal_.outcome[row] == workload::Outcome::running) {
      add(id, sim::kForever);
    }
  }
  return count_priority_inversions(stays_);
}

void QueueStays::add(sim::RequestId id, sim::Time ended) {
  const sim::Time entered = journal_.enqueued[id.index()];
  if (!sim::is_set(entered)) return;  // it never reached the queue
  stays_.push_back({.entered = entered,
                    .ended = ended,
                    .priority = requests_.class_of(id).priority,
                    .instance = journal_.instance[id.index()],
                    .is_scheduled = is_scheduled(id)});
}

std::int64_t count_priority_inversions(std::span<Served> served) {
  std::stable_sort(served.begin(), served.end(), [](const Served& a, const Served& b) {
    return std::tie(a.instance, a.slo_class, a.arrival) <
           std::tie(b.instance, b.slo_class, b.arrival);
  });
  std::int64_t pairs = 0;
  for (std::size_t begin = 0; begin < served.size();) {
    std::size_t end = begin;
    while (end < served.size() && served[end].instance == served[begin].instance &&
           served[end].slo_class == served[begin].slo_class) {
      ++end;
    }
    pairs += count_in_group(served.subspan(begin, end - begin));
    begin = end;
  }
  return pairs;
}

std::int64_t count_head_of_line_blocking(std::span<const double> mean_waiting) {
  if (mean_waiting.size() < 2) return 0;
  const double mean = std::accumulate(mean_waiting.begin(), mean_waiting.end(), 0.0) /
                      static_cast<double>(mean_waiting.size());
  return std::count_if(mean_waiting.begin(), mean_waiting.end(),
                       [&](double waiting) { return waiting > 2.0 * mean; });
}

}  // namespace spillway::metrics
