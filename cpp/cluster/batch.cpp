#include "cluster/batch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "cluster/randomness.h"
#include "sim/schema/codec.h"

namespace spillway::cluster {

namespace {

constexpr std::chrono::milliseconds kBetweenQuestions{100};

/// The requests that several runs share: made by the first that asks, dropped with the last.
class SharedRequests {
 public:
  void expect_one_more() { ++left_; }

  std::shared_ptr<const workload::Requests> take(const Simulation& simulation, std::uint64_t seed,
                                                 const std::function<bool()>& interrupted) {
    const std::scoped_lock lock(mutex_);
    if (!requests_) requests_ = offered_requests(simulation, seed, interrupted);
    std::shared_ptr<const workload::Requests> taken = requests_;
    if (--left_ == 0) requests_.reset();
    return taken;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<const workload::Requests> requests_;
  std::size_t left_ = 0;
};

/// For each simulation the first one that offers the same requests under the same seed.
std::vector<std::size_t> same_workload(std::span<const Simulation> simulations) {
  std::vector<sim::Value> written;
  std::vector<std::size_t> first;
  for (const Simulation& one : simulations) {
    sim::Value::List key{sim::Value(one.quantum_ns), sim::Value(one.metrics.streaming),
                         sim::encode(one.workload, sim::Purpose::identity)};
    written.emplace_back(std::move(key));
    const auto equal = std::find(written.begin(), written.end(), written.back());
    first.push_back(static_cast<std::size_t>(equal - written.begin()));
  }
  return first;
}

class Batch {
 public:
  Batch(std::span<const Simulation> simulations, std::span<const std::uint64_t> seeds,
        const BatchOptions& options)
      : simulations_(simulations),
        seeds_(seeds),
        options_(options),
        outputs_(simulations.size() * seeds.size()),
        errors_(outputs_.size()),
        same_workload_(same_workload(simulations)),
        workloads_(outputs_.size()) {
    for (const Simulation& one : simulations) check_runnable(one);
    for (std::size_t i = 0; i < simulations.size(); ++i) {
      const bool is_random = !random_streams(simulations[i]).empty();
      for (std::size_t k = 0; k < (is_random ? seeds.size() : 1); ++k) {
        tasks_.push_back(i * seeds.size() + k);
        copies_.push_back(is_random ? 1 : seeds.size());
      }
    }
    for (const std::size_t task : tasks_) workload_of(task).expect_one_more();
  }

  std::vector<std::shared_ptr<const Output>> operator()() {
    {
      std::vector<std::jthread> workers;
      const std::size_t count = std::clamp<std::size_t>(options_.threads, 1, tasks_.size());
      try {
        start(workers, count);
        wait();
      } catch (...) {
        // What the caller's own functions throw ends the batch as well.
        stopped_ = true;
        throw;
      }
    }
    for (const std::exception_ptr& error : errors_) {
      if (error) std::rethrow_exception(error);
    }
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      const auto first = outputs_.begin() + static_cast<std::ptrdiff_t>(tasks_[i]);
      std::fill_n(first, copies_[i], *first);
    }
    return std::move(outputs_);
  }

 private:
  SharedRequests& workload_of(std::size_t task) {
    return workloads_[same_workload_[task / seeds_.size()] * seeds_.size() + task % seeds_.size()];
  }

  // As many workers as can be had; at least one.
  void start(std::vector<std::jthread>& workers, std::size_t count) {
    workers.reserve(count);
    while (workers.size() < count) {
      try {
        workers.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        if (workers.empty()) throw;
        break;
      }
    }
    const std::scoped_lock lock(mutex_);
    started_ = workers.size();
  }

  void work() {
    for (;;) {
      const std::size_t next = next_++;
      if (stopped_ || next >= tasks_.size()) break;
      run_one(tasks_[next]);
      const std::scoped_lock lock(mutex_);
      done_ += copies_[next];
    }
    {
      const std::scoped_lock lock(mutex_);
      ++ended_;
    }
    changed_.notify_one();
  }

  void run_one(std::size_t task) {
    const Simulation& simulation = simulations_[task / seeds_.size()];
    const std::uint64_t seed = seeds_[task % seeds_.size()];
    const std::function<bool()> interrupted = [this] { return stopped_.load(); };
    try {
      const RunOptions options{.requests = workload_of(task).take(simulation, seed, interrupted),
                               .reference = options_.reference,
                               .keep_requests = options_.keep_requests,
                               .interrupted = interrupted};
      outputs_[task] = std::make_shared<const Output>(run(simulation, seed, options));
    } catch (const sim::Interrupted&) {
      outputs_[task].reset();
    } catch (...) {
      errors_[task] = std::current_exception();
      stopped_ = true;
    }
  }

  // In the calling thread: looks after the caller's wishes until all workers are through.
  void wait() {
    std::unique_lock lock(mutex_);
    while (ended_ < started_) {
      changed_.wait_for(lock, kBetweenQuestions);
      const std::size_t done = done_;
      lock.unlock();
      if (!stopped_ && options_.interrupted && options_.interrupted()) stopped_ = true;
      if (options_.progress) options_.progress(done);
      lock.lock();
    }
    lock.unlock();
    if (options_.progress) options_.progress(done_);
  }

  std::span<const Simulation> simulations_;
  std::span<const std::uint64_t> seeds_;
  const BatchOptions& options_;
  std::vector<std::size_t> tasks_;   // which outputs are made
  std::vector<std::size_t> copies_;  // by task: how many outputs are that one
  std::vector<std::shared_ptr<const Output>> outputs_;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::size_t> same_workload_;
  std::vector<SharedRequests> workloads_;  // by first simulation and seed

  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t started_ = 0;  // workers
  std::size_t ended_ = 0;
  std::size_t done_ = 0;
};

}  // namespace

std::vector<std::shared_ptr<const Output>> run_batch(std::span<const Simulation> simulations,
                                                     std::span<const std::uint64_t> seeds,
                                                     const BatchOptions& options) {
  if (simulations.empty() || seeds.empty()) return {};
  return Batch(simulations, seeds, options)();
}

}  // namespace spillway::cluster
