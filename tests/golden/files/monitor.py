"""Print the view of ``nws load`` for fixed measurements."""

from apples.weather import monitor_text

available = {"cpu": 0.75, "memory": 0.5, "swap": 1.0, "disk": 0.4}
job = {"job": "lab.2", "wanted": 2.0, "processes": 3, "cpu_seconds": 81.5, "memory": 2.1e9}
rank = {"job": "lab.2", "rank": 0, "processes": 1, "cpu_seconds": 40.7, "memory": 1.1e9}
ada = {"host": "ada", "time": 0.0, "cpus": 8, "wanted": 2.5, "others": 0.5, "available": available}
ada |= {"capacity": 0.66, "load": 0.31, "jobs": [job], "ranks": [rank]}
problems = [{"machine": "bob", "text": "no answer for 30.0 s"}]
print(monitor_text({"hosts": [ada], "problems": problems}, ranks=True))
