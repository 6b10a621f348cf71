// The folder of a run: config.toml, plugins.json, metrics.jsonl, checkpoints/. Decides whether a run is new or goes on.
#pragma once

#include <string>
#include <vector>

#include "core/comm/group.h"
#include "core/config/config.h"

namespace shale {

struct RunFolder {
  std::string path, checkpoints;
  std::string resume_from;          // snapshot to go on from, or ""
  std::vector<std::string> doomed;  // rank 0: what job.overwrite gives up of an earlier run, there until delete_doomed
};

// Collective; rank 0 looks and all get its answer. resume = "none" refuses a folder that holds an earlier run
// (Error{config}) unless job.overwrite, which gives that run up; "auto" takes the newest complete snapshot if there is
// one; a path must be a complete snapshot (Error{checkpoint}), and is refused likewise where the folder holds another
// run, or later snapshots of the same one. With checkpoint.enable every rank must see the folder (Error{config}).
RunFolder open_run_folder(Group& everyone, const Config&);

// Rank 0 only, when the new run stands: a run that cannot start must not cost the one before. Error{io}.
void delete_doomed(const RunFolder&);

// Puts a file into the run folder whole or not at all. Error{io} naming it and the system's reason.
void write_whole(const std::string& path, const std::string& text);

// Rank 0 only: what was resolved, for people and for later runs.
void write_run_files(const RunFolder&, const Config&, const std::string& plugins_json);

}  // namespace shale
