// The limit against which speed is measured: scenario W8 and nothing else.
//
// Eight instances in turn, Poisson arrivals at 96/s, 512 tokens in and 128 out, chunked prefill
// within 2,048 tokens per step, 256 seats, memory without bounds. Step times are those of the
// preset llama-3.1-8b-h100-tp2. There is no KV memory, no tenant and no gateway, but everything
// else that a run of W8 does: events in global order of time (arrival, entry to the engine, end of
// a jump), steps of equal length made at once, the stamps of every request, and at the end the
// figures of TTFT, TPOT, E2E latency, scheduling delay and gaps. From the same arrivals it makes
// the same steps and the same figures as Spillway.
//
//   skeleton_w8 [--requests N] [--instances N] [--rate R] [--repeats N] [--arrivals FILE]
//
// FILE holds arrivals in ns as int64 in the byte order of the machine. Prints one JSON object; the
// time is that of the processor, of the fastest repeat. It includes nothing of Spillway and
// compiles by itself: `benchmarks/shares.py`.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace {

using Time = std::int64_t;  // ns
using Request = std::uint32_t;

constexpr Time kForever = std::numeric_limits<Time>::max();
constexpr std::int64_t kInputTokens = 512;
constexpr std::int64_t kOutputTokens = 128;
constexpr std::int64_t kTokensPerStep = 2048;
constexpr std::int64_t kSeats = 256;
constexpr double kAlpha0_us = 1601.350510688092;
constexpr double kAlphaInput_us = 3.512476196805965;
constexpr double kAlphaOutput_us = 1805.5430360826988;
constexpr double kBeta0_us = 6910.420479880494;
constexpr double kBetaPrefill_us = 17.67057489844186;
constexpr double kBetaDecode_us = 2.8377471109943855;

double cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// A multiset of durations: counts by value, with open addressing.
class Gaps {
 public:
  void add(Time value, std::int64_t count) {
    if (2 * used_ >= cells_.size()) grow();
    Cell& cell = cell_of(value);
    used_ += cell.count == 0;
    cell.value = value;
    cell.count += count;
  }
  double mean() const {
    std::vector<std::pair<Time, std::int64_t>> sorted;
    for (const Cell& cell : cells_) {
      if (cell.count != 0) sorted.emplace_back(cell.value, cell.count);
    }
    std::sort(sorted.begin(), sorted.end());
    double sum = 0;
    double total = 0;
    for (const auto& [value, count] : sorted) {
      sum += static_cast<double>(value) * static_cast<double>(count);
      total += static_cast<double>(count);
    }
    return sum / total;
  }

 private:
  struct Cell {
    Time value = 0;
    std::int64_t count = 0;
  };
  Cell& cell_of(Time value) {
    const std::size_t mask = cells_.size() - 1;
    std::size_t at = (static_cast<std::uint64_t>(value) * 0x9E3779B97F4A7C15u >> 32) & mask;
    while (cells_[at].count != 0 && cells_[at].value != value) at = (at + 1) & mask;
    return cells_[at];
  }
  void grow() {
    std::vector<Cell> old(2 * cells_.size());
    old.swap(cells_);
    for (const Cell& cell : old) {
      if (cell.count != 0) cell_of(cell.value) = cell;
    }
  }

  std::vector<Cell> cells_ = std::vector<Cell>(256);
  std::size_t used_ = 0;
};

// A queue that grows by doubling and never shrinks.
template <class T>
class Ring {
 public:
  bool empty() const { return head_ == tail_; }
  std::int64_t size() const { return tail_ - head_; }
  const T& front() const { return items_[head_ & (items_.size() - 1)]; }
  void pop() { ++head_; }
  void push(const T& item) {
    if (tail_ - head_ == items_.size()) {
      std::vector<T> more(2 * items_.size());
      for (std::uint32_t i = head_; i != tail_; ++i) {
        more[i - head_] = items_[i & (items_.size() - 1)];
      }
      tail_ -= head_;
      head_ = 0;
      items_.swap(more);
    }
    items_[tail_++ & (items_.size() - 1)] = item;
  }

 private:
  std::vector<T> items_ = std::vector<T>(64);
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
};

struct Prefill {
  Request id;
  std::int32_t computed;
  std::int32_t tokens;  // per step of the current jump
};
struct Decoder {
  std::int64_t last_step;  // of the instance
  Request id;
};

struct Engine {
  Ring<Request> waiting;
  Ring<Decoder> decoders;  // in the order of joining, hence of finishing: all outputs are as long
  std::vector<Prefill> prefills;
  bool stepping = false;
  bool full = false;
  Time alarm = kForever;  // end of the jump
  Time jump_start = 0;
  Time step_duration = 0;
  std::int64_t jump_steps = 0;
  std::int64_t steps_before = 0;
  std::int64_t in_flight = 0;
};

// The earliest of the instances' alarms, by a tournament.
class Alarms {
 public:
  explicit Alarms(std::size_t instances)
      : leaves_(std::bit_ceil(instances)), time_(2 * leaves_, kForever), owner_(2 * leaves_) {
    for (std::size_t i = 0; i < leaves_; ++i) owner_[leaves_ + i] = i;
    for (std::size_t i = leaves_ - 1; i > 0; --i) owner_[i] = owner_[2 * i];
  }
  Time time() const { return time_[1]; }
  std::size_t owner() const { return owner_[1]; }
  void set(std::size_t owner, Time time) {
    std::size_t node = leaves_ + owner;
    time_[node] = time;
    for (node /= 2; node > 0; node /= 2) {
      const bool right = time_[2 * node + 1] < time_[2 * node];
      time_[node] = right ? time_[2 * node + 1] : time_[2 * node];
      owner_[node] = right ? owner_[2 * node + 1] : owner_[2 * node];
    }
  }

 private:
  std::size_t leaves_;
  std::vector<Time> time_;
  std::vector<std::size_t> owner_;
};

class Skeleton {
 public:
  Skeleton(const std::vector<Time>& arrivals, std::size_t instances)
      : arrival(arrivals),
        instance(arrivals.size()),
        enqueued(arrivals.size()),
        scheduled(arrivals.size()),
        first_token(arrivals.size()),
        finished(arrivals.size()),
        engines_(instances),
        alarms_(instances) {}

  void run() {
    const auto delay = static_cast<Time>((kAlpha0_us + kAlphaInput_us * kInputTokens) * 1000.0);
    std::size_t next = 0;
    std::size_t entering = 0;
    std::size_t turn = 0;
    for (;;) {
      const Time at_arrival = next < arrival.size() ? arrival[next] : kForever;
      const Time at_entry = entering < next ? arrival[entering] + delay : kForever;
      const Time now = std::min({at_arrival, at_entry, alarms_.time()});
      if (now == kForever) break;
      ++events;
      if (alarms_.time() == now) {
        const std::size_t owner = alarms_.owner();
        end_jump(engines_[owner], now);
        // A request that enters at this very instant is part of the step.
        while (entering < next && arrival[entering] + delay == now) {
          enter(static_cast<Request>(entering++), now);
        }
        start_jump(engines_[owner], now);
        alarms_.set(owner, engines_[owner].alarm);
      } else if (at_arrival == now) {
        instance[next++] = static_cast<std::int32_t>(turn);
        ++engines_[turn].in_flight;
        turn = turn + 1 == engines_.size() ? 0 : turn + 1;
      } else {
        const auto id = static_cast<Request>(entering++);
        const auto owner = static_cast<std::size_t>(instance[id]);
        enter(id, now);
        if (!engines_[owner].stepping) start_jump(engines_[owner], now);
        alarms_.set(owner, engines_[owner].alarm);
      }
    }
  }

  const std::vector<Time>& arrival;
  std::vector<std::int32_t> instance;
  std::vector<Time> enqueued;
  std::vector<Time> scheduled;
  std::vector<Time> first_token;
  std::vector<Time> finished;
  Gaps gaps;
  std::int64_t events = 0;
  std::int64_t steps = 0;
  std::int64_t completed = 0;

 private:
  void start_jump(Engine& engine, Time now) {
    std::int64_t budget = kTokensPerStep - engine.decoders.size();
    std::int64_t prefill_tokens = 0;
    std::int64_t jump = kForever;
    bool emits = !engine.decoders.empty();
    if (emits) jump = engine.decoders.front().last_step - engine.steps_before;
    const auto schedule = [&](Prefill& prefill) {
      const std::int64_t missing = kInputTokens - prefill.computed;
      prefill.tokens = static_cast<std::int32_t>(std::min(missing, budget));
      budget -= prefill.tokens;
      prefill_tokens += prefill.tokens;
      if (prefill.tokens == missing) {
        emits = true;
        jump = 1;
      } else if (prefill.tokens > 0) {
        jump = std::min(jump, (missing - 1) / prefill.tokens);
      }
    };
    for (Prefill& prefill : engine.prefills) schedule(prefill);
    while (!engine.waiting.empty() && budget > 0 && running(engine) < kSeats) {
      const Request id = engine.waiting.front();
      engine.waiting.pop();
      scheduled[id] = now;
      engine.prefills.push_back({id, 0, 0});
      schedule(engine.prefills.back());
    }
    engine.stepping = running(engine) > 0;
    engine.alarm = kForever;
    if (!engine.stepping) return;
    double step_us = kBeta0_us + kBetaPrefill_us * static_cast<double>(prefill_tokens);
    step_us = step_us + kBetaDecode_us * static_cast<double>(engine.decoders.size());
    if (emits) step_us += kAlphaOutput_us;
    engine.step_duration = std::max<Time>(1, static_cast<Time>(step_us * 1000.0));
    engine.full = budget == 0 || running(engine) == kSeats;
    engine.jump_start = now;
    engine.jump_steps = jump;
    engine.alarm = now + jump * engine.step_duration;
  }

  void end_jump(Engine& engine, Time now) {
    steps += engine.jump_steps;
    engine.steps_before += engine.jump_steps;
    if (!engine.decoders.empty()) {
      gaps.add(engine.step_duration, engine.jump_steps * engine.decoders.size());
    }
    while (!engine.decoders.empty() && engine.decoders.front().last_step == engine.steps_before) {
      finished[engine.decoders.front().id] = now;
      engine.decoders.pop();
      --engine.in_flight;
      ++completed;
    }
    std::size_t kept = 0;
    for (Prefill prefill : engine.prefills) {
      prefill.computed += static_cast<std::int32_t>(engine.jump_steps) * prefill.tokens;
      if (prefill.computed < kInputTokens) {
        engine.prefills[kept++] = prefill;
      } else {
        first_token[prefill.id] = now;
        engine.decoders.push({engine.steps_before + kOutputTokens - 1, prefill.id});
      }
    }
    engine.prefills.resize(kept);
    engine.stepping = false;
  }

  void enter(Request id, Time now) {
    Engine& engine = engines_[static_cast<std::size_t>(instance[id])];
    enqueued[id] = now;
    engine.waiting.push(id);
    if (!engine.stepping || engine.jump_steps <= 1 || engine.full) return;
    // The jump ends with the current step.
    engine.jump_steps =
        std::min(engine.jump_steps, (now - engine.jump_start - 1) / engine.step_duration + 1);
    engine.alarm = engine.jump_start + engine.jump_steps * engine.step_duration;
  }

  static std::int64_t running(const Engine& engine) {
    return engine.decoders.size() + static_cast<std::int64_t>(engine.prefills.size());
  }

  std::vector<Engine> engines_;
  Alarms alarms_;
};

struct Figures {
  double mean;
  double std_dev;
  std::array<double, 4> percentiles;  // 50, 90, 95, 99
};

// Percentiles by sorting only the buckets that contain them.
Figures figures_of(const std::vector<double>& values) {
  constexpr std::array<double, 4> kPercentiles{50, 90, 95, 99};
  constexpr std::size_t kBuckets = 4096;
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  double least = values[0];
  double largest = values[0];
  for (const double value : values) {
    sum += value;
    least = std::min(least, value);
    largest = std::max(largest, value);
  }
  Figures figures{sum / n, 0, {}};
  const double scale = largest > least ? static_cast<double>(kBuckets - 1) / (largest - least) : 0;
  const auto bucket_of = [&](double value) {
    return static_cast<std::size_t>((value - least) * scale);
  };
  std::vector<std::uint32_t> size(kBuckets);
  std::vector<std::uint32_t> begin(kBuckets + 1);
  double squares = 0;
  for (const double value : values) {
    squares += (value - figures.mean) * (value - figures.mean);
    ++size[bucket_of(value)];
  }
  figures.std_dev = std::sqrt(squares / n);
  for (std::size_t i = 0; i < kBuckets; ++i) begin[i + 1] = begin[i] + size[i];
  const auto bucket_at = [&](std::size_t rank) {
    const auto after = std::upper_bound(begin.begin(), begin.end(), rank);
    return static_cast<std::size_t>(after - begin.begin()) - 1;
  };
  const auto ranks = [&](double p) {
    const auto below = static_cast<std::size_t>(p / 100.0 * (n - 1));
    return std::pair(below, std::min(below + 1, values.size() - 1));
  };
  std::vector<bool> is_wanted(kBuckets);
  for (const double p : kPercentiles) {
    const auto [below, above] = ranks(p);
    is_wanted[bucket_at(below)] = is_wanted[bucket_at(above)] = true;
  }
  std::vector<double> wanted;
  for (const double value : values) {
    if (is_wanted[bucket_of(value)]) wanted.push_back(value);
  }
  std::sort(wanted.begin(), wanted.end());
  std::vector<std::size_t> place(kBuckets);
  std::size_t at = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    place[i] = at;
    if (is_wanted[i]) at += size[i];
  }
  const auto value_at = [&](std::size_t rank) {
    const std::size_t bucket = bucket_at(rank);
    return wanted[place[bucket] + rank - begin[bucket]];
  };
  for (std::size_t i = 0; i < kPercentiles.size(); ++i) {
    const auto [below, above] = ranks(kPercentiles[i]);
    const double rank = kPercentiles[i] / 100.0 * (n - 1);
    const double low = value_at(below);
    figures.percentiles[i] = low + (value_at(above) - low) * (rank - std::floor(rank));
  }
  return figures;
}

// Exponential gaps from splitmix64.
std::vector<Time> poisson(std::size_t count, double requests_per_s) {
  std::vector<Time> arrivals;
  std::uint64_t state = 0;
  double at_s = 0;
  for (std::size_t i = 0; i < count; ++i) {
    state += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    at_s -= std::log1p(-static_cast<double>(z >> 11) * 0x1p-53) / requests_per_s;
    arrivals.push_back(static_cast<Time>(at_s * 1e9 + 0.5));
  }
  return arrivals;
}

std::vector<Time> read(const char* path) {
  std::vector<Time> arrivals;
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) {
    std::perror(path);
    std::exit(2);
  }
  for (Time arrival = 0; std::fread(&arrival, sizeof arrival, 1, file) == 1;) {
    arrivals.push_back(arrival);
  }
  std::fclose(file);
  return arrivals;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t requests = 20'000;
  std::size_t instances = 8;
  double requests_per_s = 96;
  int repeats = 20;
  const char* file = nullptr;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    const char* value = argv[i + 1];
    if (option == "--requests") {
      requests = static_cast<std::size_t>(std::atoll(value));
    } else if (option == "--instances") {
      instances = static_cast<std::size_t>(std::atoll(value));
    } else if (option == "--rate") {
      requests_per_s = std::atof(value);
    } else if (option == "--repeats") {
      repeats = std::atoi(value);
    } else if (option == "--arrivals") {
      file = value;
    } else {
      std::fprintf(stderr, "%s: must be --requests, --instances, --rate, --repeats or --arrivals\n",
                   argv[i]);
      return 2;
    }
  }
  const std::vector<Time> arrivals =
      file == nullptr ? poisson(requests, requests_per_s) : read(file);
  double best_s = std::numeric_limits<double>::infinity();
  Figures ttft{};
  Figures tpot{};
  Figures e2e{};
  Figures delay{};
  double mean_gap = 0;
  std::int64_t steps = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double start_s = cpu_s();
    Skeleton run(arrivals, instances);
    run.run();
    std::vector<double> values(arrivals.size());
    const auto measure = [&](const auto& value_of) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(value_of(i));
      return figures_of(values);
    };
    ttft = measure([&](std::size_t i) { return run.first_token[i] - arrivals[i]; });
    e2e = measure([&](std::size_t i) { return run.finished[i] - arrivals[i]; });
    tpot = measure([&](std::size_t i) {
      const auto e2e_ns = static_cast<double>(run.finished[i] - arrivals[i]);
      return (e2e_ns - static_cast<double>(run.first_token[i] - arrivals[i])) / (kOutputTokens - 1);
    });
    delay = measure([&](std::size_t i) { return run.scheduled[i] - arrivals[i]; });
    mean_gap = run.gaps.mean();
    best_s = std::min(best_s, cpu_s() - start_s);
    steps = run.steps;
  }
  std::printf(
      "{\"requests\": %zu, \"cpu_s\": %.9f, \"steps\": %lld, \"mean_ttft_ms\": %.17g, "
      "\"std_ttft_ms\": %.17g, \"p99_ttft_ms\": %.17g, \"mean_tpot_ms\": %.17g, "
      "\"mean_itl_ms\": %.17g, \"mean_e2el_ms\": %.17g, \"p50_e2el_ms\": %.17g, "
      "\"mean_scheduling_delay_ms\": %.17g}\n",
      arrivals.size(), best_s, static_cast<long long>(steps), ttft.mean / 1e6, ttft.std_dev / 1e6,
      ttft.percentiles[3] / 1e6, tpot.mean / 1e6, mean_gap / 1e6, e2e.mean / 1e6,
      e2e.percentiles[0] / 1e6, delay.mean / 1e6);
}
