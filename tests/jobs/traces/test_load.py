"""Every format in a few lines, read by its content alone; two published files whole."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from hippo.jobs.traces.load import ALL, load_trace

from .conftest import Reading

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 07:00:55,100.0,8,800.0,6214e9
2017-10-09 07:01:55,66.0,1,66.0,11cb48
"""
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
11,uA,vc1,1,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:42:01,60,0
12,uB,vc1,0,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:30,2020-06-09 18:45:36,,3
13,uA,vc2,8,64,1,CANCELLED,2020-06-09 18:41:28,,,,
14,uA,vc2,8,64,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-09 18:41:28,0,0
"""
GAVEL_7 = "A3C\tcmd\t--n\t0\t8233\t0.000000\t1\nLM (batch size 5)\tcmd %s\t-n\t1\t16712\t50.5\t32\n"
GAVEL_10 = (
    "ResNet-50 (batch size 64)\tcmd\timagenet\t--n\t1\t4400\t1\t5\t2.0\t10\n"
    "ResNet-50 (batch size 64)\tcmd\timagenet\t--n\t1\t7920\t2\t1\t-1.000000\t0\n"
)
SWF = """; UnixStartTime: 1000000
; MaxNodes: 128
   1     0   10  100   4  -1  2000000  4  200 -1 1  3 1 -1 1 -1 -1 -1
   2    50   -1   -1  -1  -1 -1  8  300 -1 5  3 1 -1 1 -1 -1 -1
   3    60    0   30  -1  -1 -1  8   -1 1000000 0 -1 7 -1 1 -1 -1 -1
"""
PAI_TASKS = """j1,tensorflow,1.0,Terminated,100.0,160.0,600.0,29.29,50.0,MISC
j2,ps,2.0,Terminated,200.0,300.0,400.0,10.0,,
j2,worker,3.0,Terminated,210.0,310.0,400.0,10.0,50.0,V100
j3,worker,1.0,Waiting,,,400.0,10.0,100.0,V100
j4,prepare,2.0,Failed,400.0,500.0,350.0,10.0,0.0,
"""
PAI_JOBS = """j1,i1,alice,Terminated,90.0,160.0
j2,i2,bob,Terminated,150.0,310.0
j4,i4,alice,Failed,,500.0
"""


def test_philly_csv(reading: Reading):
    trace = reading(PHILLY)
    jobs = trace.workload
    assert trace.format == "philly (CSV)"
    assert list(jobs.arrival_s) == [0, 60, 60]
    assert list(jobs.duration_s) == [100, 66, 66]
    assert list(jobs.devices) == [8, 1, 1]
    assert [jobs.job(job).user for job in range(3)] == ["6214e9", "11cb48", "11cb48"]
    assert jobs.names == ("line 3", "line 2", "line 4")  # rows that repeat one another stay
    assert trace.begin_s == 1507532455.0  # 2017-10-09 07:00:55
    assert trace.remarks == ("sorted: 1 row arrives before the row above",)


def test_philly_json(reading: Reading):
    def attempt(start: str | None, end: str | None, *machines: int) -> dict[str, object]:
        day = "2017-10-07 "
        detail = [{"ip": f"m{n}", "gpus": [f"gpu{k}" for k in range(n)]} for n in machines]
        return {"start_time": start and day + start, "end_time": end and day + end, "detail": detail}

    submitted = "2017-10-07 01:00:00"
    entries = [
        {"jobid": "a", "user": "x", "vc": "v", "attempts": [attempt("01:10:00", "01:11:00", 8, 8)]},
        {"jobid": "b", "user": "y", "vc": "v", "attempts": []},
        {"jobid": "c", "user": "x", "vc": "v", "attempts": [attempt("01:00:30", None, 1)]},
        {
            "jobid": "d",
            "user": None,
            "vc": "v",
            "attempts": [
                attempt("01:00:00", "01:01:00", 1),
                attempt(None, "01:05:00", 1),
                attempt("02:00:00", "02:00:30", 1),
            ],
        },
    ]
    text = json.dumps([{"submitted_time": submitted, "status": "Pass", **entry} for entry in entries], indent=1)
    trace = reading(text)
    jobs = trace.workload
    assert trace.format == "philly (JSON)"
    assert jobs.names == ("a", "d")
    assert list(jobs.duration_s) == [60, 90]
    assert list(jobs.devices) == [16, 1]
    assert [jobs.job(job).user for job in range(2)] == ["x", "v"]
    assert trace.passed == {"never ran": 1, "still running when the trace ends": 1}


def test_helios(reading: Reading):
    trace = reading(HELIOS)
    jobs = trace.workload
    assert trace.format == "helios"
    assert jobs.names == ("11", "12")
    assert list(jobs.duration_s) == [60, 246]
    assert list(jobs.devices) == [1, 16]
    assert jobs.job(0).runs_on == ()
    assert jobs.job(0).kind == "train"
    assert jobs.job(1).runs_on == ("cpu",)
    assert jobs.job(1).kind == "preprocess"
    assert trace.passed == {"never ran": 1, "ran for 0 s": 1}


def test_gavel_in_seven_columns(reading: Reading):
    jobs = reading(GAVEL_7).workload
    assert jobs.duration_s == pytest.approx([1000, 100])
    assert list(jobs.devices) == [1, 32]
    assert list(jobs.arrival_s) == [0, 50.5]
    assert jobs.job(1).user == "LM (batch size 5)"


def test_gavel_in_ten_columns(reading: Reading):
    trace = reading(GAVEL_10)
    jobs = trace.workload
    assert trace.format == "gavel"
    assert jobs.duration_s == pytest.approx([1000, 1000])
    assert list(jobs.devices) == [2, 1]
    assert list(jobs.priority) == [1, 5]
    assert list(jobs.deadline_s) == [np.inf, pytest.approx(2010)]


def test_gavel_in_nine_columns_is_ten_without_the_directory(reading: Reading):
    rows = [line.split("\t") for line in GAVEL_10.splitlines()]
    nine = reading("".join("\t".join([*row[:2], *row[3:]]) + "\n" for row in rows))
    assert nine.format == "gavel"
    assert [nine.workload.job(job) for job in range(2)] == [reading(GAVEL_10).workload.job(job) for job in range(2)]


def test_swf(reading: Reading):
    trace = reading(SWF)
    jobs = trace.workload
    assert trace.format == "swf"
    assert jobs.names == ("1", "3")
    assert trace.begin_s == 1_000_000
    assert list(jobs.devices) == [4, 8]
    assert list(jobs.duration_s) == [100, 30]
    assert jobs.job(0).estimate_s == 200
    assert jobs.job(1).estimate_s is None
    assert [jobs.job(job).user for job in range(2)] == ["u3", "g7"]
    assert list(jobs.memory_gb) == pytest.approx([2, 1])
    assert trace.passed == {"never ran": 1}


@pytest.mark.parametrize("told", ["820454400", "820454400 (Mon Jan  1 00:00:00 1996)", "820454400.0", " 820454400"])
def test_swf_tells_when_it_begins(reading: Reading, told: str):
    row = "1 3600 0 10 4 -1 -1 4 -1 -1 1 3 1 -1 1 -1 -1 -1\n"
    assert reading(f"; Version: 2\n; UnixStartTime: {told}\n" + row).begin_s == 820458000.0


def test_swf_tells_a_job_once(reading: Reading):
    row = "{} {} 0 {} 4 -1 -1 4 -1 -1 {} 3 1 -1 1 -1 -1 -1\n"
    trace = reading(row.format(1, 0, 100, 1) + row.format(1, 0, 40, 2) + row.format(1, 50, 60, 3))
    assert list(trace.workload.duration_s) == [100]
    assert sum(trace.passed.values()) == 2


@pytest.mark.parametrize("header", [False, True])
def test_pai_tasks_alone(reading: Reading, header: bool):
    names = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    trace = reading(names * header + PAI_TASKS)
    jobs = trace.workload
    assert trace.format == "pai"
    assert jobs.names == ("j1", "j2", "j4")
    assert list(jobs.arrival_s) == [0, 100, 300]
    assert list(jobs.duration_s) == [60, 110, 100]
    assert list(jobs.devices) == [1, 2, 7]  # half a GPU; three halves; 2 x 350 % of CPU
    assert jobs.job(2).runs_on == ("cpu",)
    assert jobs.job(1).runs_on == ()
    assert sum(trace.passed.values()) == 1


def test_a_job_of_pai_that_still_runs(reading: Reading):
    """Its first task has ended, how long the job takes nobody knows."""
    tasks = "j5,ps,1.0,Terminated,100.0,160.0,,,100.0,\nj5,worker,1.0,Running,110.0,,,,100.0,V100\n"
    trace = reading(PAI_TASKS + tasks)
    assert "j5" not in trace.workload.names
    assert trace.passed["still running when the trace ends"] == 1


def test_pai_of_a_folder(tmp_path: Path):
    (tmp_path / "pai_task_table.csv").write_text(PAI_TASKS)
    (tmp_path / "pai_job_table.csv.gz").write_bytes(gzip.compress(PAI_JOBS.encode()))
    jobs = load_trace(tmp_path).workload
    assert list(jobs.arrival_s) == [0, 60, 310]  # submitted at 90 and 150; j4 has no time of submission
    assert [jobs.job(job).user for job in range(3)] == ["alice", "bob", "alice"]


def test_own_json(reading: Reading):
    entry = {"name": "a", "arrival_s": 5, "duration_s": 10, "devices": 4, "kind": "deploy", "runs_on": ["A100", "cpu"]}
    more = {"name": "b", "arrival_s": 7.5, "duration_s": 1, "deadline_s": 9, "data_gb": 3, "data_at": "west"}
    trace = reading(json.dumps({"hippo_jobs": 1, "jobs": [entry, more]}))
    first, second = trace.workload.job(0), trace.workload.job(1)
    assert trace.format == "own"
    assert first.runs_on == ("A100", "cpu")
    assert first.kind == "deploy"
    assert first.devices == 4
    assert (second.arrival_s, second.deadline_s, second.data_gb, second.data_at) == (2.5, 4, 3, "west")


def test_own_csv(reading: Reading):
    text = "name,arrival_s,duration_s,runs_on,priority,model\na,0,10,A100|cpu,3,llama-3-8b\nb,1,5,,,\n"
    first, second = (reading(text).workload.job(job) for job in (0, 1))
    assert first.runs_on == ("A100", "cpu")
    assert first.priority == 3
    assert first.model == "llama-3-8b"
    assert second.runs_on == ()
    assert second.devices == 1
    assert second.model == ""


def test_a_packed_file(reading: Reading):
    assert len(reading(gzip.compress(PHILLY.encode()), name="philly.csv.gz").workload) == 3


def test_line_ends_of_windows_and_a_mark_of_byte_order(reading: Reading):
    jobs = reading(b"\xef\xbb\xbf" + PHILLY.replace("\n", "\r\n").encode()).workload
    assert len(jobs) == 3
    assert jobs.users == ("11cb48", "6214e9")


@pytest.mark.parametrize("text", [PHILLY, HELIOS, GAVEL_7, GAVEL_10, SWF, PAI_TASKS])
def test_no_file_looks_like_two_formats(reading: Reading, tmp_path: Path, text: str):
    from hippo.jobs.traces.source import Head

    reading(text)
    head = Head.of(tmp_path / "trace.txt")
    assert sum(each.looks(head) for each in ALL) == 1


def test_the_published_part_of_philly(data: Path):
    trace = load_trace(data / "traces" / "philly_open.csv.gz")
    jobs = trace.workload
    assert len(jobs) == 68_008
    assert trace.remarks == ()
    assert len(jobs.users) == 14
    assert float(np.median(jobs.duration_s)) == 1192
    assert round(float(jobs.duration_s.mean())) == 13_021
    assert int(jobs.devices.max()) == 32


def test_gavels_jobs_run_as_long_as_phillys(data: Path):
    """The file was made from Philly's virtual cluster ee9e8c: where arrival and devices agree, durations must."""
    gavel = load_trace(data / "traces" / "gavel_msr.trace").workload
    philly = load_trace(data / "traces" / "philly_open.csv.gz").workload
    ours = np.flatnonzero(philly.user == philly.users.index("ee9e8c"))
    moved_s = 1_157_500 - (1504521041 - 1504224000)  # from the file's first arrival to 2017-09-01, to Philly's first
    known = {(int(philly.arrival_s[job]), int(philly.devices[job])): philly.duration_s[job] for job in ours}
    pairs = [
        (gavel.duration_s[job], known[key])
        for job in range(len(gavel))
        if (key := (int(gavel.arrival_s[job]) + moved_s, int(gavel.devices[job]))) in known
    ]
    ratio = np.array([mine / theirs for mine, theirs in pairs if theirs > 3600])
    assert len(pairs) > 600
    assert np.mean(np.abs(ratio - 1) < 1e-3) > 0.97  # the others share their second with another job


def test_times_told_in_seconds(reading: Reading):
    rows = (
        HELIOS.splitlines()[0]
        + "\n11,uA,vc1,1,4,1,COMPLETED,1000,1000,1060,60,0\n12,uA,vc1,1,4,1,COMPLETED,1500,,,5,0\n"
    )
    assert list(reading(rows).workload.arrival_s) == [0, 500]


def test_times_with_an_offset_are_of_one_clock(reading: Reading):
    """07:02 UTC comes before 16:01 at +08:00, which is 08:01 UTC."""
    rows = "2017-10-09T16:01:00+08:00,50,1,50,c2\n2017-10-09T07:02:00Z,100,2,200,c1\n"
    trace = reading(PHILLY.splitlines()[0] + "\n" + rows)
    assert list(trace.workload.arrival_s) == [0, 3540]
    assert list(trace.workload.devices) == [2, 1]
    assert trace.begin_s == 1507532520.0  # 2017-10-09 07:02 UTC


def test_an_attempt_from_one_zone_to_another(reading: Reading):
    times = {"start_time": "2017-10-09T07:02:00Z", "end_time": "2017-10-09T15:32:00+08:00"}
    attempts = [{**times, "detail": [{"ip": "m", "gpus": ["gpu0"]}]}]
    entry = {"jobid": "a", "submitted_time": "2017-10-09 07:00:00+00:00", "attempts": attempts}
    assert list(reading(json.dumps([entry])).workload.duration_s) == [1800]


@pytest.mark.parametrize(
    "text",
    [
        "name,arrival_s,model,tokens,least,most,batch,seq\na,0,gpt2,1e9,2,16,64,512\nb,60,llama-3-8b,2e9,,8,,\n",
        "name,arrival_s,devices,model,tokens,least,batch,seq\na,0,16,gpt2,1e9,2,64,512\nb,60,8,llama-3-8b,2e9,,,\n",
        """[{"name": "a", "arrival_s": 0, "model": "gpt2", "tokens": 1e9, "least": 2, "most": 16, "batch": 64,
             "seq": 512}, {"name": "b", "arrival_s": 60, "model": "llama-3-8b", "tokens": 2e9, "most": 8}]""",
    ],
)
def test_elastic_jobs_may_leave_out_what_follows_from_the_rest(reading: Reading, text: str):
    workload = reading(text).workload
    assert workload.trainings == (("gpt2", 64, 512), ("llama-3-8b", 384, 4096))
    rows = {key: getattr(workload, key).tolist() for key in ("devices", "least", "most", "tokens", "kind")}
    assert rows == {"devices": [16, 8], "least": [2, 8], "most": [16, 8], "tokens": [1e9, 2e9], "kind": [0, 0]}
    assert np.isnan(workload.duration_s).all()


def test_gangs_and_elastic_jobs_stand_in_one_file(reading: Reading):
    text = (
        "arrival_s,duration_s,devices,model,tokens,least\n0,60,4,,,\n1,,8,gpt2,5e8,\n2,,8,,,\n3,60,,,,\n4,60,2,,0,0\n"
    )
    trace = reading(text)
    assert trace.workload.elastic.tolist() == [False, True, False]
    assert trace.workload.devices.tolist() == [4, 8, 2]
    assert trace.passed == {"never ran": 1, "no number of devices": 1}
