create database prefect;
create database mlflow;
