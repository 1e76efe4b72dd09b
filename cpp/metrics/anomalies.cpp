#include "metrics/anomalies.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

namespace spillway::metrics {

namespace {

// Counts per rank in a Fenwick tree.
class RankCounts {
 public:
  explicit RankCounts(std::size_t size) : tree_(size + 1, 0) {}
  void add(std::size_t rank, std::int64_t count = 1) {
    for (std::size_t i = rank + 1; i < tree_.size(); i += i & (0 - i)) tree_[i] += count;
  }
  // Number of entries with a rank below `rank`.
  std::int64_t below(std::size_t rank) const {
    std::int64_t sum = 0;
    for (std::size_t i = rank; i > 0; i -= i & (0 - i)) sum += tree_[i];
    return sum;
  }

 private:
  std::vector<std::int64_t> tree_;
};

// A request enters or leaves a queue.
struct Move {
  sim::Time at;
  std::uint32_t rank = 0;  // of its priority among all priorities, the lowest first
  bool is_scheduled = false;
};

// Entries to and departures from the queue of one instance.
struct QueueMoves {
  std::vector<Move> in;
  std::vector<Move> out;

  void sort() {
    for (std::vector<Move>* moves : {&in, &out}) {
      std::sort(moves->begin(), moves->end(),
                [](const Move& a, const Move& b) { return a.at < b.at; });
    }
  }
};

// Precondition: both are in order of time.
std::int64_t count_overtaken(const QueueMoves& moves, std::size_t num_ranks) {
  RankCounts queued(num_ranks);
  std::int64_t pairs = 0;
  auto entry = moves.in.begin();
  for (auto begin = moves.out.begin(); begin != moves.out.end();) {
    const sim::Time now = begin->at;
    for (; entry != moves.in.end() && entry->at <= now; ++entry) queued.add(entry->rank);
    // Requests scheduled at one instant do not overtake each other.
    auto end = begin;
    for (; end != moves.out.end() && end->at == now; ++end) queued.add(end->rank, -1);
    const std::int64_t in_queue = (entry - moves.in.begin()) - (end - moves.out.begin());
    for (; begin != end; ++begin) {
      if (begin->is_scheduled) pairs += in_queue - queued.below(begin->rank + 1);
    }
  }
  return pairs;
}

std::int64_t count_in_group(std::span<const Served> group) {
  std::vector<double> sorted;
  for (const Served& request : group) sorted.push_back(request.e2e_ns);
  std::sort(sorted.begin(), sorted.end());
  RankCounts earlier(sorted.size());
  std::int64_t pairs = 0;
  std::int64_t seen = 0;
  for (std::size_t begin = 0; begin < group.size();) {
    std::size_t end = begin;
    while (end < group.size() && group[end].arrival == group[begin].arrival) ++end;
    // Requests scheduled at one instant form no pairs; they are added after all of them were
    // counted.
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

std::int64_t count_priority_inversions(std::span<const QueueStay> stays) {
  std::vector<std::int64_t> priorities;
  std::size_t instances = 0;
  for (const QueueStay& stay : stays) {
    const auto at = std::lower_bound(priorities.begin(), priorities.end(), stay.priority);
    if (at == priorities.end() || *at != stay.priority) priorities.insert(at, stay.priority);
    instances = std::max(instances, static_cast<std::size_t>(stay.instance) + 1);
  }
  std::vector<QueueMoves> queues(instances);
  for (const QueueStay& stay : stays) {
    const auto at = std::lower_bound(priorities.begin(), priorities.end(), stay.priority);
    const auto rank = static_cast<std::uint32_t>(at - priorities.begin());
    QueueMoves& queue = queues[static_cast<std::size_t>(stay.instance)];
    queue.in.push_back({stay.entered, rank});
    queue.out.push_back({stay.ended, rank, stay.is_scheduled});
  }
  std::int64_t pairs = 0;
  for (QueueMoves& queue : queues) {
    queue.sort();
    pairs += count_overtaken(queue, priorities.size());
  }
  return pairs;
}

void QueueStays::left(sim::RequestId id, sim::Time now) {
  if (!is_scheduled(id)) add(id, now);
}

void QueueStays::forget(sim::RequestId id) {
  if (is_scheduled(id)) {
    add(id, states_.scheduled[id.index()]);
  } else if (states_.outcome[id.index()] == workload::Outcome::running) {
    add(id, sim::kForever);
  }
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
      add(id, states_.scheduled[row]);
    } else if (states_.outcome[row] == workload::Outcome::running) {
      add(id, sim::kForever);
    }
  }
  return count_priority_inversions(stays_);
}

void QueueStays::add(sim::RequestId id, sim::Time ended) {
  const sim::Time entered = states_.enqueued[id.index()];
  if (!sim::is_set(entered)) return;  // it never reached the queue
  stays_.push_back({.entered = entered,
                    .ended = ended,
                    .priority = requests_.class_of(id).priority,
                    .instance = states_.instance[id.index()],
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
