#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cluster/context.h"
#include "instance/fallible.h"
#include "instance/instance.h"
#include "signals/busy_monitor.h"
#include "signals/scrapes.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::cluster {

/// Load events: when a worker is read, when its reading reaches the gateways, and the load as each
/// gateway then knows it. With `live` signals, a worker is read at every change that a gateway
/// sees; with `scraped`, at each scrape; with `on_read`, when a decision is due.
class LoadEvents {
 public:
  /// `scrapes`: null unless workers are scraped. Both must outlive this.
  LoadEvents(Context& context, std::span<const std::unique_ptr<instance::Instance>> workers,
             const signals::Scrapes* scrapes);

  void start();
  /// One more gateway, which knows nothing yet.
  void add_gateway(const signals::BusyMonitor& in_force);
  /// The thresholds of `from` are in force from the next load event of each gateway on.
  void set_thresholds(const signals::BusyMonitor& from);
  /// An event of phase `telemetry`. Returns the worker that was scraped, whose next scrape may be
  /// scheduled; unset: none.
  std::optional<sim::InstanceId> handle(const sim::Event& event);
  void schedule_scrape(sim::InstanceId worker);
  /// Whether the worker's last scrape was lost.
  bool was_lost(sim::InstanceId worker) const { return last_reads_[worker.index()].was_lost; }
  /// Skips scrapes of which all is known by `until`, except the last of them. Returns how long they
  /// take. Precondition: they read what the last one has read.
  sim::Time skip_scrapes(sim::InstanceId worker, sim::Time until);
  /// A decision is due: with `on_read`, reads workers again whose reading is old enough.
  void renew() {
    if (sim::is_set(period_)) read_what_is_old();
  }

  // Events at a gateway; ignored unless a policy consumes load events.
  [[gnu::always_inline]] void sent(std::size_t gateway, sim::RequestId id, sim::InstanceId worker) {
    if (!monitors_.empty()) note_sent(monitors_[gateway], id, worker);
  }
  void first_token(std::size_t gateway, sim::RequestId id, sim::InstanceId worker) {
    if (!monitors_.empty()) note_first_token(monitors_[gateway], id, worker);
  }
  void finished(std::size_t gateway, sim::RequestId id, sim::InstanceId worker) {
    if (!monitors_.empty()) note_finished(monitors_[gateway], id, worker);
  }

  // With pools: of a request whose prompt is computed by another worker; the memory of a worker has
  // changed.
  void sent_to_continue(std::size_t gateway, sim::RequestId id, sim::InstanceId worker);
  void finished_continuing(std::size_t gateway, sim::RequestId id, sim::InstanceId worker);
  void changed(sim::InstanceId worker) {
    if (!monitors_.empty()) schedule_live(worker);
  }

  /// The load as a gateway knows it; null unless a policy consumes load events.
  const signals::BusyWorkers* known_to(std::size_t gateway) const {
    return monitors_.empty() ? nullptr : &monitors_[gateway].busy();
  }

 private:
  /// The subject of an event of phase `telemetry`; its tie is the worker.
  enum class Kind : std::uint32_t { reading, arrival };
  /// The last and the next reading of a worker.
  struct LastRead {
    std::int64_t next_scrape = 0;
    sim::Time at{0};
    bool is_due = false;    // with `live`
    bool was_lost = false;  // the last scrape
  };

  void push(sim::Time at, sim::InstanceId worker, Kind kind);
  void schedule_live(sim::InstanceId worker);
  // False: the worker is silent, and what it reported last stays known.
  bool read(sim::InstanceId worker);
  void read_what_is_old();
  void note_sent(signals::WorkerMonitor& monitor, sim::RequestId id, sim::InstanceId worker);
  void note_first_token(signals::WorkerMonitor& monitor, sim::RequestId id, sim::InstanceId worker);
  void note_finished(signals::WorkerMonitor& monitor, sim::RequestId id, sim::InstanceId worker);
  void arrive(sim::InstanceId worker);
  bool was_rejected(sim::RequestId id) const;

  Context& context_;
  std::span<const std::unique_ptr<instance::Instance>> workers_;
  const signals::Scrapes* scrapes_;
  bool is_live_;
  sim::Time period_ = sim::kUnset;                   // with `on_read`
  std::vector<signals::WorkerMonitor::Size> sizes_;  // of the workers
  std::deque<signals::WorkerMonitor> monitors_;      // by gateway, which knows the address
  std::vector<LastRead> last_reads_;                 // by worker
  std::vector<signals::RankReading> readings_;       // kept to reuse its memory
};

}  // namespace spillway::cluster
